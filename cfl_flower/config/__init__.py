"""From Hydra's overrides to one typed and checked configuration.

Here: composition, sweeps, the error line of a wrong key or value.
Not here: the settings themselves, which stand beside what they configure.
"""
