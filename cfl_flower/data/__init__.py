"""Datasets, who holds what, and when it changes.

`worlds` says who holds what and when that changes, `datasets` what there is to hold,
and `reading` how files become arrays.
"""
