"""One paper per file, on the shared base of `strategies.base`."""
