"""How files become arrays."""
