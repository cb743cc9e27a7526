"""What saved runs show: scores, comparisons, sweeps and tables.

Here: pure functions on the rows of runs, and the tables printed from them.
Not here: pictures and pages (`simulations`), which need more than a server has.
"""
