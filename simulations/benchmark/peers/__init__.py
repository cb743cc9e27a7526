"""The same work with other libraries: `python -m simulations.benchmark peers`.

`work` says what is done and scores what comes of it, `environments` installs the other
libraries, and the files below `scripts` do the work with one library each, in a process
of that library's own environment, which has nothing of ours.
"""
