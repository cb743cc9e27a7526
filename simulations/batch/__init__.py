"""How many runs are carried out side by side."""
