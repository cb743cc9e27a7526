"""What every method of clustered federated learning shares.

The rooms, in the order in which a round walks through them: `config` composes and
checks the settings, `fleet` knows which node hosts which client, `records` is the wire,
`client_app` runs tasks on a device, `checkpoint` and `results` keep what happened.
"""

__version__ = "0.1.0"
