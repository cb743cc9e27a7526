"""Representations, similarities, clustering, merging and centres.

Here: pure functions on arrays, with an explicit generator where they draw.
Not here: models, clients or rounds; a method in `strategies` decides when to call them.
"""
