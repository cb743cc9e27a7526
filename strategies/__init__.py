"""One paper per file, on the frame of `strategies.base`.

How a file reads its paper, and where it deviates, is in docs/methods.
"""
