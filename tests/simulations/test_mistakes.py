"""Wrong input: each is one line with what, which value, what is allowed or nearest."""

import re
import sys
from pathlib import Path

import pytest

from simulations.compare import main as compare
from simulations.preview import main as preview
from simulations.run import main as run

FILES = {
    "raising.py": "raise RuntimeError('no licence\\nhere')",
    "lacking.py": "import not_installed",
    "plain.py": "class Net: ...",
    "gap.csv": "a,b,label\n1,2,x\n3,,y\n4,5,x\n",
    "text.csv": "a,b,label\n1,2,x\n3,z,y\n4,5,x\n",
}
"""What lies beside the user."""

TABLE = "dataset=csv data_dir=. dataset.file="

TYPOS = [
    ("round=3", "round is not a setting; did you mean rounds?"),
    ("stratgy=fedavg", "stratgy is not a setting; did you mean strategy?"),
    ("strategy=feilding", "strategy=feilding … did you mean fielding? … fedavg, "),
    ("drift=suddn", "drift=suddn … did you mean sudden? … regroup, "),
    ("model=gru2", "model=gru2 … did you mean gru?"),
    ("experiment=flexcfl_table5", "experiment=flexcfl_table5 … flexcfl_table4?"),
    ("strategy/privacy=laplac", "strategy/privacy=laplac … did you mean laplace?"),
    ("strategy/local=adam", "strategy/local=adam … known here: sgd"),
    ("strategy.treshold=0.1", "strategy.treshold … did you mean threshold?"),
    ("strategy.local.lr=0.1", "strategy.local.lr … did you mean learning_rate?"),
    ("strategy.scan.smalest=3", "strategy.scan.smalest … did you mean smallest?"),
    ("--foo=2 rounds=2", "arguments: --foo=2; … without dashes; … --help"),
    ("--rounds 5", "arguments: --rounds; … without dashes; … --help"),
    ("--output-dir=x", "--output-dir=x; … without dashes; … --help"),
    ("--multi x", "arguments: --multi; did you mean --multirun? see --help"),
    ("drift=sudden drift.ids=[3]", "drift.ids … mean drift.steps.first.ids or "),
    ("strategy.batch_size=3", "not a setting; did you mean strategy.local.batch_size?"),
    ("learning_rate=1", "not a setting; did you mean strategy.local.learning_rate?"),
    ("drift=rotate drift.angle=9", "drift.angle … drift=rotate; "),
    ("model=mlp model.rank=2", "model.rank … did you mean model.lora.rank?"),
    ("dataset=hybrid dataset.parts={a:1}", "dataset.parts.a is not … here: fashion_"),
    ("rounds", "'rounds' cannot be read; use key=value, without spaces"),
    ("rounds= 5", "'5' cannot be read; use key=value, without spaces"),
    ("drift.rounds=[5", "'drift.rounds=[5' cannot be read; use key=value, in quotes"),
    ("+rounds=5", "rounds is a setting already; write rounds= without the plus"),
    ("strategy.privacy=laplace", "strategy.privacy=laplace … strategy/privacy= … none"),
]

VALUES = [
    ("rounds=0", "rounds=0 … at least 1"),
    ("rounds=many", "rounds=many … a whole number"),
    ("seed=-1", "seed=-1 … at least 0"),
    ("resume=maybe", "resume=maybe … true or false"),
    ("engine=spark", "engine=spark … inprocess or ray"),
    ("faults.raises=1.5", "faults.raises=1.5 … 0 to 1"),
    ("faults.raises=0.6 faults.drops=0.6", "not allowed"),
    ("system.task_timeout=-1", "system.task_timeout=-1 … at least 0"),
    ("model=mlp model.hidden=0", "model.hidden=0 … at least 1"),
    ("model=gru model.cell=rnn", "model.cell=rnn … gru or lstm"),
    ("model=vit_b_16 model.heads=5", "model.width=768 … model.heads=5"),
    ("drift.rounds=5", "drift.rounds=5 … a list of whole numbers"),
    ("drift.rounds.x=3", "drift.rounds.x is not a setting: drift.rounds is a list"),
    ("model.lora=[1]", "model.lora=[1] … a mapping with rank, targets"),
    ("devices.joins={3:1}", "devices.joins={3: 1} … a list of whole numbers"),
    ("strategy.local.schedule_settings=[1]", "settings=[1] … a mapping, such as {name"),
    ("drift=staggered drift.rounds=[0.5]", "drift.rounds=[0.5] … a list of 3 values"),
    ("drift.rounds=[9,4]", "drift.rounds=[9, 4] … ascending"),
    ("strategy.local.learning_rate=fast", "learning_rate=fast … a number"),
    ("data_dir=/no/such/folder", "data_dir=/no/such/folder … existing folder"),
    ("output_dir=/proc/none/run", "output_dir=/proc/none/run cannot be written"),
]

TOGETHER = [
    ("participants=50", "participants=50 … at most the 40 clients, or raise clients"),
    ("partition.groups=11", "partition.groups=11 … at most the 10 labels"),
    ("partition.sigma=0.1", "sigma is not a setting of partition=label_groups"),
    ("strategy=fedavg strategy.threshold=1", "is not a setting of strategy=fedavg"),
    ("strategy=fedavg strategy/trigger=pairwise", "strategy/trigger … leave it out"),
    ("partition=natural", "partition=natural … drift=regroup; use drift=none"),
    ("partition=natural drift=none", "partition=natural … use another partition"),
    ("drift=none drift.rounds=[5]", "drift.rounds=[5] … use [] with drift=none"),
    ("~drift.rounds drift.rounds=[5]", "drift.rounds is not … of drift=regroup"),
    ("partition=hybrid", "partition.domains=2 … use 1"),
    ("partition=natural dataset=synthetic clients=101 drift=none", "the 100 owners"),
    ("model=gru", "model=gru … (1, 8, 8) … (tokens, dimensions) … model=mlp"),
    ("model=ccfl_cnn", "model=ccfl_cnn … (1, 8, 8) … at least 16x16 … model=mlp"),
    ("selection=nearest strategy=fedavg", "selection=nearest … use random or oort"),
    ("server_optimizer=yogi strategy=scaffold", "server_optimizer=yogi … average with"),
    ("~model +model._target_=plain.Net", "~model … or model._target_= with a class"),
    ("-m seed=interval(0,9)", "seed=interval(0,9) names no values; list some"),
    ("seed=0,1", "seed: several values need --multirun; … compare"),
    ("--multirun strategy=glob(zz*)", "strategy=glob(zz*) matches nothing"),
    ("hydra.run.dir=here", "hydra.run.dir has no effect … output_dir=FOLDER"),
    ("gpus_per_worker=1 engine=inprocess", "gpus_per_worker=1 … no CUDA device"),
    ("gpus_per_worker=0.5", "gpus_per_worker=0.5 … use 0: … no CUDA device"),
    ("gpus_per_worker=auto", "gpus_per_worker=auto … use 0: … no CUDA device"),
    ("gpus_per_worker=all", "gpus_per_worker=all … auto"),
]

DATA = [
    ("drift=timestamps", "drift.order=time … dataset=fmow, … or another drift"),
    ("dataset=mnist", "MNIST is not in data_dir= … add dataset.download=true"),
    (f"{TABLE}nowhere.csv", "data_dir= … lacks nowhere.csv; set dataset.file"),
    (f"{TABLE}gap.csv", "gap.csv lacks values: b in 1 of … row 2; fill … missing=drop"),
    (f"{TABLE}text.csv", "text.csv: row 2 has b=z, … no finite number … name it"),
    (f"{TABLE}gap.csv dataset.label=labl", "dataset.label=labl … did you mean label?"),
]

OWN_PARTS = [
    ("model._target_=raising.Net", "'raising.Net' … no licence); … fix the module"),
    ("model._target_=lacking.Net", "'lacking.Net' … No module named 'not_installed'"),
    ("model._target_=nowhere.Net", "'nowhere.Net' … correct the path, install its"),
    ("model._target_=plain.Net", "'plain.Net' has no settings; … a dataclass"),
    ("model._target_=queue.Net", "queue is … queue.py, … no Net; … rename your module"),
    ("model._target_=plain.Mesh", "'plain.Mesh' cannot be imported … correct the path"),
    ("model._target_=lacking.Net model.hidden=3", "No module named 'not_installed'"),
    ("model._target_=plain.Mesh model.hidden=3", "'plain.Mesh' cannot be imported"),
    ("drift._target_=raising.Net drift.speed=3", "'raising.Net' … fix the module"),
    ("strategy.client=os.system", "strategy.client=os.system … a NumPyClient"),
]

MIX = "partition=mixtures drift=none"
SIZES = [
    ("clients=1e12", "clients=1000000000000 … a smaller one: … GiB of memory"),
    ("clients=1e12 participants=1e12", "clients=1000000000000 … a smaller one"),
    (f"clients=1e12 {MIX}", "clients=1000000000000 … a smaller one"),
    ("clients=1e12 partition=dirichlet", "clients=1000000000000 … a smaller one"),
    ("rounds=1e14", "rounds=100000000000000 … a smaller one"),
    ("rounds=1e14 drift=none", "rounds=100000000000000 … a smaller one"),
    ("rounds=1e14 drift=swap_all", "rounds=100000000000000 … a smaller one"),
    ("drift=sudden drift.width=1e14", "drift.steps.first.width=1000 … a smaller one"),
    ("workers=1e9", "workers=1000000000 … a smaller one"),
    ("workers=1e9 engine=ray", "workers=1000000000 … a smaller one"),
    ("clusters=1e12 strategy=ifca", "clusters=1000000000000 … at most the 40 clients"),
    ("partition.samples=1e14", "partition.samples=1000 … a smaller one"),
    ("partition.test_samples=1e14", "partition.test_samples=1000 … a smaller one"),
    (f"{MIX} partition.clusters=1e12", "partition.clusters=1000 … a smaller one"),
    (f"{MIX} partition.sizes=[1,1e14]", "partition.sizes=[1, 1000 … a smaller one"),
    ("dataset=synthetic dataset.devices=1e9", "dataset.devices=1000 … a smaller one"),
    ("dataset.size=1e9", "dataset.size=1000000000 … a smaller one"),
    ("model=mlp model.hidden=1e14", "the network of Mlp fails … a smaller one"),
]
"""Of what no machine has the memory for: refused before any of it is taken."""

SYSTEM = "cfl_flower.run_config.System"
COMPOSED = [
    ("strategy.scan.largest=1", "strategy.scan.largest=1 … at least"),
    ("output_dir=[", "output_dir=[ … cannot be read … in quotes"),
    ("~strategy", "~strategy is not allowed … write strategy="),
    ("strategy=null", "strategy=null … fielding"),
    ("model=5", "model=5 … mclr"),
    ("drift=sudden drift.steps.first={swaps:[[1,12]],wrap:false}", "0 to 9"),
    ("drift=sudden drift.steps.second.swaps=[]", "drift.steps.second.swaps=[]"),
    ("drift=sudden drift.steps.third.ids=[99]", "drift.steps.third.ids=[99] … 0 to 39"),
    ("drift=timestamps drift.order=day", "drift.order=day … random or own"),
    ("drift=label_buckets drift.every=null", "drift.window=12 … drift.every"),
    ("drift=label_buckets drift.every=1.5", "drift.every=1.5 … at least 1"),
    ("drift=label_buckets drift.window=63", "drift.window=63 … 10 buckets"),
    ("partition=mixtures dataset=synthetic", "cannot be rotated … without rotations"),
    ("drift=sudden ~drift.steps.first._target_", "drift.steps.first … _target_"),
    (f"drift._target_={SYSTEM} ~drift.rounds", "drift._target_=System"),
    ("drift=none drift._target_=cfl_flower.data.worlds.drift.Change", "only a base"),
    ("partition=natural partition.samples=5", "partition.samples … known here"),
    (f"drift=sudden +drift.steps.more={{_target_:{SYSTEM}}}", "a kind of change"),
    ("drift=[sudden,noise]", "drift=[sudden,noise] … concept_half"),
    ("model._target_=null", "model={ … _target_"),
    ("model._target_=os.system", "os.system … has no settings"),
    ("model._target_=cfl_flower.seeding.key", "seeding.key … no settings"),
    ("dataset.test_fraction=0.001", "test_fraction=0.001 … 0.01 to 0.99"),
    ("drift=noise drift.strength=-1", "drift.strength=-1 … from 0"),
    ("drift=sensor_failure drift.strength=2", "drift.strength=2 … to 1"),
    ("drift=conditional drift.labels=[10]", "drift.labels=[10] … 0 to 9"),
    ("drift=conditional drift.labels=[-1]", "drift.labels=-1 … at least 0"),
    ("drift=noise drift.kind=fog", "drift.kind=fog … noise or shift"),
    (f"strategy.local.batch_size={2**32}", "from 1 to 2147"),
    (f"strategy.local.batch_size={10**20}", "from 1 to 2147"),
    (f"strategy.local.steps={2**32}", "steps … from 1 to 2147"),
    (f"strategy.local.steps={10**20}", "steps … from 1 to 2147"),
    (f"{TABLE}text.csv dataset.names=[yes,no,yes]", "dataset.names= … each name once"),
    (f"{TABLE}text.csv dataset.names=['1','01']", "dataset.names= … each name once"),
    ("drift=feature_shift drift.features=[1]", "drift.features=[1] … 0 to 0"),
]

MISTAKES = [*TYPOS, *VALUES, *COMPOSED, *TOGETHER, *DATA, *OWN_PARTS, *SIZES]
"""Arguments, and what the line says of them; … stands for what is between."""


@pytest.fixture(autouse=True)
def _beside_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("CFL_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def require_line(complaint: str, told: str) -> None:
    """Require one line with these words in this order."""
    words = ".*".join(re.escape(each.strip()) for each in told.split("…"))
    assert re.fullmatch(rf"cfl-flower error: .*{words}.*\n", complaint), complaint


@pytest.mark.parametrize(("arguments", "told"), MISTAKES)
def test_wrong_input_is_one_line_with_a_remedy_and_exit_code_2(
    arguments, told, tmp_path, capsys
):
    assert run(arguments.split()) == 2
    require_line(capsys.readouterr().err, told)
    assert not list(tmp_path.rglob("rounds.jsonl"))


@pytest.mark.parametrize("command", [compare, preview])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("strategy=feilding", "strategy=feilding … did you mean fielding?"),
        ("--rounds 5", "--rounds … without dashes; … --help"),
        ("partition.groups=11", "partition.groups=11 … at most the 10 labels"),
    ],
)
def test_other_commands_meet_it_in_the_same_way(command, arguments, told, capsys):
    assert command(arguments.split()) == 2
    require_line(capsys.readouterr().err, told)


PARTS = ["drift", "strategy.local"]
KINDS = {
    "Plain": "=Plain(a=1) is not allowed; use a mapping",
    "Needs": ".a is missing; set it to a whole number",
    "PlainInside": "=Plain(a=1) is not allowed; use a mapping",
    "Raises": "own.Raises fails (KeyError: 'x'); correct its settings",
    "Bare": "Bare",
    "Class": "own.Class' has no settings",
    "Color": "own.Color' has no settings",
    "function": "own.function' has no settings",
    "VALUE": "own.VALUE' has no settings",
    "Nope": "own.Nope' cannot be imported",
}
OWN = """
from dataclasses import dataclass
from enum import Enum
from cfl_flower.settings import settings
@dataclass
class Plain: a: int = 1
@dataclass
class Needs: a: int
class PlainInside: Settings = Plain
@settings("own")
class Raises:
    def __post_init__(self): raise KeyError("x")
@settings("own")
class Bare: a: int = 1
class Class: ...
class Color(Enum): a = 1
def function(): ...
VALUE = 3
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_whatever_stands_for_a_part_is_told_in_one_line(part, kind, tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    sys.modules.pop("own", None)
    assert run([f"{part}._target_=own.{kind}"]) == 2
    complaint = capsys.readouterr().err
    assert re.fullmatch(r"cfl-flower error: .*\n", complaint)
    nearer = f"{part}._target_=" in complaint or "is not a setting" in complaint
    assert KINDS[kind] in complaint or nearer
