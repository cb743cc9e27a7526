"""FedBABU: the classifier is never trained; each client fine-tunes its own model.

Oh et al., "FedBABU: Toward Enhanced Representation for Federated Image Classification"
(ICLR 2022; Algorithm 1). Each round: participants train the extractor under the initial
classifier, which is the same for all -> extractors are averaged by samples. Before a
test a client fine-tunes the whole model on its training data.

Server keeps: the extractor. Leaves the device: the extractor of a participant. The
classifier follows from the seed.
"""

from __future__ import annotations

from typing import Any

from cfl_flower.engine.method import Disclosure, Published, Supports
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Natural, settings
from strategies.families.decoupled import DecoupledSettings, DecoupledStrategy


@settings("strategy")
class FedBABUSettings(DecoupledSettings):
    """FedBABU's settings; of the classifier's, only those of fine-tuning are used."""

    client: str = "clients.fedbabu.FedBABUClient"
    fine_tuning: Natural = 5
    """Epochs of the whole model on the client's training data before a test."""


class FedBABU(DecoupledStrategy):
    """Averages extractors, which alone are trained."""

    Settings = FedBABUSettings
    discloses = Disclosure()
    supports = Supports(
        unused=("strategy.classifier_epochs", "strategy.classifier_rate")
    )
    published = Published(
        incomplete="the common classifier never trained, and each client fine-tunes "
        "its own"
    )

    def initial_state(self) -> Any:
        """Return the initial state; raise `ConfigError` without an extractor."""
        state = super().initial_state()
        if self.split.start == 0:
            raise ConfigError(
                f"model={self.run.config.names['model']} has no extractor, which is "
                "all that strategy=fedbabu trains; use model=mlp or a deeper one"
            )
        return state
