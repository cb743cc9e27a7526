"""The examples of docs/examples work as their pages say."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfl_flower.errors import ConfigError

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def load(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of an example, which runs find as a user's own part."""
    pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(EXAMPLES / name))
    monkeypatch.setenv("CFL_PLUGINS", name)
    return import_module(name)


# Drift by losses -----------------------------------------------------------------


@pytest.fixture
def detecting(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load("detecting", "river", monkeypatch)


@pytest.mark.parametrize("client", ["AdwinClient", "KswinClient"])
def test_a_detected_drift_is_reported_once(client, detecting, run_small):
    path = f"strategy.client=detecting.{client}"
    asked = [path, "strategy=fielding", "drift.rounds=[7]", "rounds=9"]
    run = run_small(*asked)
    drifted = [row["drifted"] for row in run.rounds]
    assert drifted[5] >= 6, "what arrives next is looked at in the round before"
    assert sum(drifted) == drifted[5]
    run_small(*asked[:-1], "rounds=6", folder="again")
    resumed = run_small(*asked, "resume=true", folder="again")
    assert resumed.numbers == run.numbers


# Texts ---------------------------------------------------------------------------


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Any:
    # transformers fails beside a CPU-only torch without it.
    import_module("cfl_flower.data.reading.vision")
    return load("texts", "transformers", monkeypatch)


@pytest.fixture
def encoder(texts: Any, tmp_path: Path) -> Path:
    """Return the folder of a tiny BERT with 10 words."""
    transformers = import_module("transformers")
    config = transformers.BertConfig(
        vocab_size=12,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "tiny")
    words = ["[UNK]", "good", "bad", "a", "film", "very", "not", "the", "it", "is"]
    known = {word: number for number, word in enumerate(words)}
    tokenizers = import_module("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    fast.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.mark.slow
def test_a_clusters_model_adapts_a_text_encoder(encoder, texts, run_small, tmp_path):
    rows = ["a very good film,1", "a bad film,0", "it is good,1", "not good,0"] * 30
    (tmp_path / "reviews.csv").write_text("\n".join(["review,label", *rows]))
    data = ["dataset._target_=texts.Texts", "dataset.file=reviews.csv"]
    data += [f"data_dir={tmp_path}", "dataset.features=[review]", "dataset.tokens=6"]
    data += [f"dataset.tokenizer={encoder}", "partition.groups=2", "drift=none"]
    model = ["model._target_=texts.Encoder", f"model.source={encoder}"]
    model += ["model.lora.rank=2", "model.lora.targets=[*.query]"]
    method = ["strategy=ifca", "clusters=2", "strategy.local.epochs=10"]
    run = run_small(*data, *model, *method)
    assert not run.failures
    assert {len(each) for each in run.state.models} == {2 * (16 + 16) + 17 * 2}
    assert run.rounds[-1]["accuracy"] > 0.9
    frame = pd.DataFrame({"review": ["not good", "-"]})
    dataset = texts.Texts(features=("review",), tokenizer=str(encoder), tokens=3)
    # Numbers count from 1; what is no word is the first.
    assert dataset.inputs(frame)[0].tolist() == [[7, 2, 0], [1, 0, 0]]
    with pytest.raises(ConfigError, match=r"dataset\.tokens=9 is not allowed"):
        texts.Encoder(str(encoder)).build((9,), 2)
