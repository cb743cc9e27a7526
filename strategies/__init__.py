"""One paper per file, on the frame of `cfl_flower.engine.method`.

How a file reads its paper, and where it deviates, is in docs/methods.
"""
