"""Fielding as a Flower baseline."""
