"""The doors for research: run, compare, benchmark."""
