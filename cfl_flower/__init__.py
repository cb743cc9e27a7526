"""What every method of clustered federated learning shares.

`config` composes and checks the settings; `communication` brings tasks to clients and
results back; `client` is what surrounds a client on a device; `learning`, `clustering`,
`data` and `models` compute; `runs` keeps what happened, and `analysis` compares it.
docs/architecture.md follows a training task through them.
"""

import os

# Activations lie on huge pages where the system has them: ordinary ones, mapped anew in
# every pass of a convolution, double the time of a test. torch reads this once, late.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"
