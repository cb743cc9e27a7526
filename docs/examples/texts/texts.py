"""Texts by a pretrained encoder of Hugging Face: a dataset and a network.

Needs transformers, `pip install 'transformers>=5'`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cfl_flower.data.datasets.tables import Csv
from cfl_flower.models import Network
from cfl_flower.settings import Count, require, settings

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@settings("dataset")
class Texts(Csv):
    """A csv with a column of texts, whose tokens are the inputs."""

    features: tuple[str, ...] = ("text",)
    """The column of the texts."""
    na_values: tuple[str, ...] | None = ()
    """What stands for a missing value: nothing, as a text may be a dash."""
    standardise: Literal["clients", "pooled", False] = False
    tokenizer: str = MINILM
    """A folder with Hugging Face's files, or a name on its hub."""
    tokens: Count = 64
    """Number of tokens of a text that count."""

    def inputs(self, frame: Any) -> tuple[np.ndarray[Any, Any], list[Any]]:
        """Return the numbers of the first tokens, float32 (n, tokens).

        They count from 1, whatever the tokenizer's padding is; 0 stands behind a text.
        None of them is of a column of numbers, which the list would name.
        """
        # It takes a while to import.
        from transformers import AutoTokenizer  # noqa: PLC0415

        tokenizer = AutoTokenizer.from_pretrained(self.tokenizer)
        texts = [str(text) for text in frame[self.features[0]]]
        limit = {"truncation": True, "max_length": self.tokens}
        found = np.zeros((len(texts), self.tokens), np.float32)
        for row, ids in zip(found, tokenizer(texts, **limit)["input_ids"], strict=True):
            row[: len(ids)] = np.add(ids, 1)
        return found, []


class MeanState(nn.Module):
    """The mean of the last states of a text's tokens."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Return representations, (n, width), of token numbers from 1, (n, tokens)."""
        there = x > 0
        ids = (x.long() - 1).clamp(min=0)
        # The first token is there, as in no text at all.
        mask = torch.cat((torch.ones_like(there[:, :1]), there[:, 1:]), 1).long()
        states: Tensor = self.encoder(ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(2).to(states)
        return (states * weights).sum(1) / weights.sum(1)


@settings("model")
class Encoder:
    """A pretrained encoder and a classifier."""

    source: str = MINILM
    """A folder with Hugging Face's files, or a name on its hub."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for texts of ``shape`` (tokens,)."""
        # transformers imports torchvision, which fails beside a CPU-only torch unless
        # this comes first.
        import_module("cfl_flower.data.reading.vision")
        from transformers import AutoConfig, AutoModel  # noqa: PLC0415

        config = AutoConfig.from_pretrained(self.source)
        most = config.max_position_embeddings
        require(shape[0] <= most, "dataset.tokens", shape[0], f"at most {most}")
        if torch.get_default_device().type == "meta":
            # A network without weights, whose parameters are counted.
            encoder = AutoModel.from_config(config)
        else:
            encoder = AutoModel.from_pretrained(self.source, dtype=torch.float32)
        return Network(
            MeanState(encoder.train()), nn.Linear(config.hidden_size, classes)
        )
