"""The same work with other libraries: `python -m tests.benchmarks peers`.

`table` prepares the work, installs the libraries and measures them. The files below
`scripts` do the work, each with one library, in an environment that has nothing else of
ours.
"""
