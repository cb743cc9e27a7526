"""FedSoft-Async: clients find their own mixture, and download all cluster models.

Ruan and Joe-Wong, "FedSoft: Soft clustered federated learning with proximal local
updating" (AAAI 2022), made asynchronous as a baseline of CCFL. A client receives all K
models; mu_k is the share of its samples whose loss is smallest with model k; it trains
near sum_k mu_k w_k. The server moves each model by alpha_0 mu_k times CCFL's damping.

Server keeps: K cluster models. Leaves the device: the trained model and its shares
(d + K floats); it downloads K d floats.
"""

from __future__ import annotations

from cfl_flower.engine.asynchronous import Exchange
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Result, Vector
from strategies.families.soft import SoftSettings, SoftStrategy


class FedSoft(SoftStrategy):
    """Clients report their mixtures, counted sample by sample."""

    Settings = SoftSettings
    exchange = Exchange(mixtures=True)

    def read_result(self, phase: str, result: Result) -> Result:
        """Raise `InvalidResultError` for shares that are no mixture."""
        result = super().read_result(phase, result)
        if phase != "train":
            return result
        shares = result.arrays[1]
        if shares.min() < 0 or abs(float(shares.sum()) - 1) > 1e-3:
            detail = f"shares {shares.tolist()} are no mixture"
            raise InvalidResultError("representation", detail)
        return result

    def reply(self, row: int, result: Result) -> list[Vector]:
        """Move every model by the client's share of it; return all models."""
        model = result.arrays[0]
        shares = result.arrays[1].astype(float)
        # alpha_0 mu_k alpha_2k.
        ratios = self.ratios(shares, int(result.metrics["stamp"]))
        self.adopt(row, shares)
        self.update(row, model, ratios)
        return list(self.state.models)

    def personal(self, row: int, sent: list[Vector]) -> Vector:
        """Return the mixture of the models by the client's last shares."""
        return self.mix(row)
