"""Methods as strategies for the ClientApp that somebody has already.

The methods and their rounds are those of the engine; only what carries their tasks is
another: Flower's plain messages, as FedAvg sends them, in the place of our own.
"""
