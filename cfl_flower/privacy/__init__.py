"""Differential privacy: what may be set, and the mathematics of noise and clipping."""
