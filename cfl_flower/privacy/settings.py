"""Differential privacy of whole clients: what each may send, and with how much noise.

Neighbouring runs are the same but for the content of what one client sends: its updates
and reports in one, zeros in the other. A clipped update has a length of at most C, a
report of at most 1, so these are the sensitivities in L2. With ``privacy=local`` noise
is added before anything is sent, so that all the server makes of it is post-processing;
with ``central`` the server adds it to the mean of those who trained the same model
(`engine.stages.private_means`). Reports get theirs on the client either way, since
clusters that are made of them show in who trains which model.

`client.model_privacy` does on a client what these settings say, and refuses whatever
else it would send. Numbers of samples and results of tests are sent as they are.
docs/how-to/privacy.md has the limits.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from pydantic import Field

from cfl_flower.settings import Magnitude, Positive, settings


@settings("privacy")
class Uploads:
    """What the server can read of trained models."""

    secure_sums: bool = False
    """Whether the server can read only the sum of each cluster's results: real devices
    hide each of them behind masks that cancel in the sum."""
    least_members: Annotated[int, Field(ge=2)] = 3
    """Fewest participants in such a sum; a cluster with fewer does not train."""


@settings("privacy")
class NoPrivacy(Uploads):
    """Models are sent as they are trained."""

    on: ClassVar[bool] = False
    mode: ClassVar[str] = "none"


@settings("privacy")
class LocalPrivacy(Uploads):
    """Noise on each update, on the client."""

    on: ClassVar[bool] = True
    mode: ClassVar[str] = "local"

    clip: Magnitude = 1.0
    """C, the L2 length to which an update is shortened if it is longer."""
    noise_multiplier: Magnitude = 1.0
    """z: each number gets noise of standard deviation z C."""
    report_noise: Magnitude = 1.0
    """Standard deviation of the noise on each number of a report, whose length is at
    most 1: a label histogram or a direction."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """Probability that epsilon does not hold."""
    epsilon_budget: Positive | None = None
    """The largest epsilon of a client: one that would exceed it is not asked to train
    or to report any more; null for no limit."""

    @property
    def scale(self) -> float:
        """The standard deviation of the noise on an update's numbers, z C."""
        return self.noise_multiplier * self.clip


@settings("privacy")
class CentralPrivacy(LocalPrivacy):
    """Noise on each mean of updates, on the server."""

    mode: ClassVar[str] = "central"


ModelPrivacy: TypeAlias = NoPrivacy | LocalPrivacy | CentralPrivacy
