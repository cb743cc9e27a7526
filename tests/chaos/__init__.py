"""Kill, freeze and damage runs at random moments, and see that no number changes."""
