"""The ServerApp: reads the run-config, and starts Fielding as a Flower Strategy."""

from cfl_flower.server_app import app

__all__ = ["app"]
