"""Sums of devices' results whose terms nobody can read: `privacy.secure_sums`.

The round knows this room by one stage (`engine.stages.secure_sums`), the client app by
one runner of a device's tasks (`secure.device`).
"""
