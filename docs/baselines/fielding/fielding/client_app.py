"""The ClientApp: a Flower NumPyClient that Fielding's tasks name."""

from cfl_flower.client_app import app

__all__ = ["app"]
