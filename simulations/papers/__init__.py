"""The published tables, and what it takes to reproduce them."""
