"""Datasets, who holds what, and when it changes."""
