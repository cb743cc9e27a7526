"""The losses by which participants are weighted or selected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.privacy.clipping import capped_counts, capped_losses
from cfl_flower.types import START_LOSS, START_RMS, Plan, Scalar


class ParticipantLosses(Stage):
    """Asks for losses, and keeps what selections know participants by."""

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Ask for the losses that the server optimiser or the selection needs."""
        asked: dict[str, Scalar] = {}
        if context.phase == "train" and context.config.server_optimizer.by_loss:
            asked[START_LOSS] = True
        if context.phase == "train" and context.config.selection.learns:
            asked[START_RMS] = True
        return replace(plan, config={**plan.config, **asked})

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Note the losses and the times of participants."""
        learns = context.phase == "train" and context.config.selection.learns
        if not learns or not results:
            return results
        state = context.state
        history = state.history.extended(len(state.clients))
        clients = [result.client for result in results]
        rms = np.array([float(result.telemetry[START_RMS]) for result in results])
        cap = context.config.strategy.weight_cap
        local = context.config.strategy.local
        told = np.array([[result.num_examples] for result in results])
        seen = capped_counts(told, cap)[:, 0]
        if local.steps is not None:
            # As FedScale: a client is useful for the samples that it can train on.
            seen = np.minimum(seen, local.steps * local.batch_size)
        utilities = capped_losses(rms, cap) * seen
        seconds = context.clock.seconds(clients)
        rows = state.rows(clients)
        state.history = history.noted(context.number, rows, utilities, seconds)
        return results
