"""When a client reports about its data, and with what noise."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfl_flower.client.context import ClientContext
from cfl_flower.client.drift_report import DriftReport, ReportRequest
from cfl_flower.clustering.representations import digest
from cfl_flower.seeding import generator, key
from cfl_flower.types import Vector


@dataclass(frozen=True)
class DriftReporter:
    """Reports a client's representation unless the server holds it."""

    context: ClientContext
    changed: Callable[[Vector, Vector, float], bool]
    """Tells whether a representation differs from an earlier one by more than is
    tolerated: ``changed(last, now, tolerance)``."""

    def report(
        self, request: ReportRequest, representation: Vector, samples: int
    ) -> DriftReport | None:
        """Return the report on the present data, or None if there is nothing new."""
        protected = self.protect(representation, samples)
        if digest(protected) == request.held:
            return None
        if request.tolerance and self._tolerated(request, representation, protected):
            return None
        return DriftReport(protected, samples)

    def protect(self, histogram: Vector, samples: int) -> Vector:
        """Return a histogram with noise, if privacy is enabled.

        The noise follows from the data, so that they look unchanged while they are.
        Simulated clients draw it from the run's seed. Whoever sets the seed could
        remove the noise: a real device draws from a secret that it makes and keeps.
        """
        context = self.context
        noise = getattr(context.settings, "privacy", None)
        if noise is None or not noise.on:
            return histogram
        purpose = f"privacy/{digest(histogram)}/{samples}"
        rng = generator(context.seed, purpose, 0, context.client)
        if context.folder is not None:
            rng = np.random.default_rng([*self._secret(), key(purpose)])
        protected: Vector = noise.protect(histogram, samples, rng)
        return protected

    def _secret(self) -> list[int]:
        """Return 256 bits that nobody else knows, made once."""
        state = self.context.state.part("privacy")
        if not (kept := state.at(0)):
            kept = {"secret": np.frombuffer(os.urandom(32), np.uint32)}
            state.save(0, kept)
        secret: list[int] = kept["secret"].tolist()
        return secret

    def _tolerated(
        self, request: ReportRequest, seen: Vector, protected: Vector
    ) -> bool:
        """Compare with the last report if the server has it; else remember this one.

        What is compared is what the client saw, before the noise.
        """
        state, round = self.context.state.part("report"), self.context.round
        remembered = state.load(before=round + 1)
        last = remembered.get("reported")
        known = last is not None and digest(last) == request.held
        before = np.asarray(remembered.get("seen", last))
        if known and not self.changed(before, seen, request.tolerance):
            return True
        noisy = {} if protected is seen else {"seen": seen}
        state.save(round, {"reported": protected, **noisy})
        return False
