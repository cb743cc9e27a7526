"""Texts by a transformer's tokens, in a whole run; needs the extra ``text``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from cfl_flower.analysis.saved import load_run
from cfl_flower.errors import ConfigError
from cfl_flower.models import Transformer
from simulations.export import export, load_module
from tests.conftest import Runner
from tests.simulations.test_export import load_served


def test_without_its_package_a_transformer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install transformers first"):
        Transformer().build((8,), 2)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """Return the folder of a tiny BERT with 12 words."""
    # transformers fails beside a CPU-only torch without it.
    import_module("cfl_flower.data.reading.vision")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path / "tiny" / "model"
    config = transformers.BertConfig(
        vocab_size=12,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    transformers.BertModel(config).save_pretrained(folder)
    words = ["[UNK]", "good", "bad", "a", "film", "very", "not", "the", "it", "is"]
    known = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_clusters_model_is_the_adapter_of_a_text_encoder(
    encoder: Path, run_small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ["a very good film,1", "a bad film,0", "it is good,1", "not good,0"] * 30
    table = tmp_path / "texts.csv"
    table.write_text("\n".join(["text,label", *rows]))
    # As a package that ships weights.
    (tmp_path / "tiny" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    text = [f"dataset.file={table}", "dataset.text=text", "dataset.tokenizer=tiny"]
    lora = ["model.lora.rank=2", "model.lora.targets=[*.query]"]
    run = run_small(
        "strategy=ifca",
        "clusters=2",
        "dataset=csv",
        *text,
        "dataset.tokens=6",
        "model=transformer",
        f"model.source={encoder}",
        *lora,
        "partition.groups=2",
        "drift=none",
        "strategy.local.epochs=10",
    )
    assert not run.failures
    assert {len(model) for model in run.state.models} == {2 * (16 + 16) + 17 * 2}
    assert run.rounds[-1]["accuracy"] > 0.9
    (cluster, *_) = export(run.folder, tmp_path / "out")
    # Numbers count from 1: "good", "not good", and behind them nothing.
    x = torch.tensor([[2.0, 0, 0, 0, 0, 0], [7, 2, 0, 0, 0, 0]])
    saved = load_run(run.folder)
    served = load_served(tmp_path / "out")
    torch.testing.assert_close(served(x), load_module(saved, cluster)(x))
    assert "tiny" not in sys.modules
    with pytest.raises(ConfigError, match=r"dataset\.tokens=9 is not allowed"):
        saved.build("model")[0].build((9,), 2)
    with pytest.raises(ConfigError, match=r"model\.source=no/where cannot"):
        Transformer("no/where").build((4,), 2)
