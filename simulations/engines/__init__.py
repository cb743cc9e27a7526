"""How one run is carried out: in this process, or on Flower's SuperLink."""
