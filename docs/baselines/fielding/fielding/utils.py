"""Saved runs, read back for tables and figures."""

from cfl_flower.analysis.saved import find_runs, load_run

__all__ = ["find_runs", "load_run"]
