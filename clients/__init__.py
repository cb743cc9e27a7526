"""What each method asks of a device: Flower NumPyClients, one file per difference."""
