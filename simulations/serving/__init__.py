"""What is served of a saved run, and to whom."""
