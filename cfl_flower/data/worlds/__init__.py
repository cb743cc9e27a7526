"""Who holds what, and when it changes."""
