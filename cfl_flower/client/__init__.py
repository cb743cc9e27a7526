"""The environment of a client on a device or a simulation worker.

Here: its context, state, node configuration, time limit, faults, attacks and noise.
Not here: what a method asks of it (`clients`), or how models are trained (`learning`).
"""
