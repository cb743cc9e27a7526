"""A run on disk, from its first round to its checkpoint.

Here: the run directory, its records, reading them back, checkpoints, callbacks.
Not here: scores and comparisons of runs (`analysis`).
"""
