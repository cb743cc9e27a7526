"""Texts as the numbers of their tokens, for networks of Hugging Face's transformers."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cfl_flower.data.reading.fetching import may_fetch
from cfl_flower.errors import ConfigError
from cfl_flower.settings import require, require_package
from cfl_flower.types import FloatArray

FILES = ["config.json", "model.safetensors", "tokenizer.json"]


def pretrained(source: str, key: str) -> Path:
    """Return the folder of a pretrained model's files, which ``key`` names.

    That of an installed package with such a folder ``model``, a folder, or one that is
    fetched from Hugging Face's hub by its name. Raises `ConfigError`.
    """
    require_package("transformers", key, source)
    folder = _in_package(source) or Path(source).expanduser()
    if (folder / FILES[0]).is_file():
        return folder.absolute()
    allowed = "a folder, or a package with one, on a device"
    require(may_fetch(), key, source, allowed)
    # It takes a while to import.
    from huggingface_hub import snapshot_download  # noqa: PLC0415

    try:
        return Path(snapshot_download(source, allow_patterns=FILES))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(
            f"{key}={source} cannot be had ({reason}); use a folder with "
            f"{', '.join(FILES)}, a package that has one, or a name on the hub"
        ) from error


def _in_package(source: str) -> Path | None:
    """Return the folder `model` of an installed package that has one with a model."""
    package = find_spec(source) if source.isidentifier() else None
    parents = (package and package.submodule_search_locations) or ()
    folders = (Path(each, "model") for each in parents)
    return next((each for each in folders if (each / FILES[0]).is_file()), None)


def require_installed(source: str, key: str) -> None:
    """Require a package with a model: a device reads nothing else that others name."""
    there = _in_package(source) is not None
    allowed = "an installed package with a folder `model`, on a device with a data-dir"
    require(there, key, source, allowed)


def token_numbers(texts: Iterable[object], source: str, length: int) -> FloatArray:
    """Return the numbers of texts' first tokens, float32 (n, length).

    They count from 1, whatever the tokenizer's padding is; 0 stands behind a text.
    """
    folder = pretrained(source, "dataset.tokenizer")
    from tokenizers import Tokenizer  # noqa: PLC0415

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)
    encoded = tokenizer.encode_batch([str(text) for text in texts])
    found: FloatArray = np.zeros((len(encoded), length), np.float32)
    for row, each in zip(found, encoded, strict=True):
        row[: len(each.ids)] = np.add(each.ids, 1)
    return found
