"""What every method of clustered federated learning shares.

The rooms, in the order in which a round walks through them: `config` composes and
checks the settings, `roster` knows which node hosts which client, `fleet` delivers to
them, `records` is the wire, `client_app` runs tasks on a device, `checkpoint` and
`results` keep what happened.
"""

import os

# Activations lie on huge pages where the system has them: ordinary ones, mapped anew in
# every pass of a convolution, double the time of a test. torch reads this once, late.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"
