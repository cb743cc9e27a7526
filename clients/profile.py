"""The client of FLUX and FEROMA: profiles its data by a model that is common to all.

Computes: local SGD; the features that the network's extractor makes of its samples, and
their moments; a test with the model whose data are like its test samples.
Sends: the trained model (d floats); a profile of 2 z (L + 1) floats, with z = L; with
FLUX, before there are clusters, how many of its samples the received model gets right.
Keeps: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfl_flower.client.requests import Request
from cfl_flower.clustering.profiles import (
    LABEL_FREE,
    full_profile,
    label_free_profile,
    profile_distances,
    random_projection,
)
from cfl_flower.learning.testing import blocks_of, evaluate, switch_mode
from cfl_flower.seeding import generator
from cfl_flower.types import Config, Evaluated, FloatArray, Metrics, Reply, Vector
from clients.base import ClusteredClient, Clusters, Found
from clients.tested import Samples

FITS = "fits"
"""Key of a task's config, and of the answer: how many of its training samples the
received model gets right."""


@dataclass(frozen=True)
class ProfileRequest(Request):
    """What a client is to do with the profiling model, the last of its parameters."""

    profile: bool
    """Whether to report the profile of the next round's data."""
    halves: int = 0
    """Number of random halves of the samples that are profiled together; 0 for all
    samples once."""


class ProfileClient(ClusteredClient):
    """Describes its data by moments of features."""

    reports_loss = True
    fine_tunes = True
    finds_unlabelled = True

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer with the profile by parameters[0], if requested."""
        count = len(self.data(self.context.upcoming).labels)
        request = ProfileRequest.from_config(config)
        found = {} if request is None else self.describe(parameters[0], request)
        return [], count, found

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train; count what the received model gets right before, if requested."""
        found: Metrics = {}
        if FITS in config:
            x, y = self.samples(self.context.round)
            found[FITS] = evaluate(self.load(parameters[0]), x, y)[1]
        arrays, count, metrics = super().fit(parameters, config)
        return arrays, count, {**metrics, **found}

    def evaluate(self, parameters: list[Vector], config: Config) -> Evaluated:
        """Test as all clients do, then do what is requested with the last parameter."""
        loss, count, found = super().evaluate(parameters, config)
        request = ProfileRequest.from_config(config)
        if request is None:
            return loss, count, found
        return loss, count, found | self.describe(parameters[-1], request)

    def describe(self, profiler: Vector, request: ProfileRequest) -> Metrics:
        """Return the profile of the next round's training data as a metric."""
        upcoming = self.context.upcoming
        x, y = self.draw(self.samples(upcoming), request.halves, upcoming)
        points = self.project(profiler, x)
        classes = self.classes
        return {"profile": full_profile(points, y.cpu().numpy(), classes).tobytes()}

    def draw(self, samples: Samples, halves: int, server_round: int) -> Samples:
        """Return so many random halves of the samples, one after the other."""
        x, y = samples
        if not halves:
            return x, y
        rng = self.rng("profile", server_round)
        half = (len(y) + 1) // 2
        drawn = [rng.permutation(len(y))[:half] for _ in range(halves)]
        places = torch.from_numpy(np.concatenate(drawn)).to(y.device)
        return x[places], y[places]

    @torch.no_grad()
    def project(self, profiler: Vector, x: Tensor) -> FloatArray:
        """Return the projected features of n samples by the profiling model, (n, L).

        Of a network that is not divided they are its outputs; of one whose extractor
        has no layers its inputs.
        """
        model = self.context.model.load(profiler)
        switch_mode(model, training=False)
        model.passes += len(x)
        network = getattr(model.module, "extractor", model.module)
        blocks = [network(block).flatten(1) for block in blocks_of(x)]
        features = torch.cat(blocks).float()
        rng = generator(self.context.seed, "projection")
        directions = random_projection(features.shape[1], self.classes, rng)
        points = features @ torch.from_numpy(directions).to(features.device)
        return points.cpu().numpy().astype(np.float64)

    def find_cluster(self, among: Clusters, unlabelled: bool) -> Found:
        """Return the cluster whose data's inputs are most like its own; no labels."""
        x, _ = self.data(self.context.round).train()
        profile = label_free_profile(self.project(among.places["profiler"], x))
        landmarks = among.places["landmarks"][[*among.models]]
        gaps = profile_distances(profile[None], landmarks, among.places["ranges"])[0]
        return Found.nearest(among.models, gaps, "distance")

    def choose_unlabelled(self, among: list[Vector], x: Tensor) -> Vector:
        """Return the model whose data's profile is nearest to that of samples.

        ``among`` has the K models; the ranges of the groups that need no labels, then
        these groups for each model, shape (2 + K 2 z,); and the profiling model.
        """
        *models, landmarks, profiler = among
        profile = label_free_profile(self.project(profiler, x))
        ranges = landmarks[:LABEL_FREE]
        known = landmarks[LABEL_FREE:].reshape(len(models), -1)
        nearest = int(profile_distances(profile[None], known, ranges).argmin())
        return models[nearest]
