"""What runs in the environments of the other libraries, one file for each of them.

Nothing of the project is imported there. `runner` is the program; it imports one of
the others, whose ``run`` trains as the job says, calls ``lap`` after each round, and
returns the models as vectors, shape (k, d), in the order of torch's parameters. The
libraries are imported within functions: pytest looks into every module, and has none.
"""
