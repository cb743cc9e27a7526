"""What runs in the environments of the other libraries, one script for each of them.

A script trains as the job on its command line says, writes `DONE` on a line of its own
after each round, and saves the models as vectors, shape (k, d), in the order of torch's
parameters. Libraries are imported within functions: pytest looks into every module, and
has none of them.
"""
