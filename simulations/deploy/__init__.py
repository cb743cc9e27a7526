"""Real devices: keys, SuperLink, SuperNodes, submission and the doctor.

Each module is a command, `python -m simulations.deploy.<name>`; README.md beside this
file is the guide. A device needs only what `device.txt` lists.
"""
