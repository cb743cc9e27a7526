"""What the data of a run are before it begins."""
