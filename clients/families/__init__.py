"""What the clients of several methods share."""
