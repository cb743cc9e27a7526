"""Representations, similarities, clustering and profiles of clients' data.

Here: pure functions on arrays, with an explicit generator where they draw.
Not here: models, clients or rounds; a method in `strategies` decides when to call them.
"""
