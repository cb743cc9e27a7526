"""The track: fixed streams, a fixed protocol, and the rows of all methods."""
