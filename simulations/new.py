"""Begin a part of one's own, such as a method: a module, settings and a test.

    python -m simulations.new method my_method
    python -m simulations.run strategy=my_method

It is written into the current folder, where commands find it, and works as it is. A
client comes with the method that asks it. A
project is a method in a folder of its own, which is a Flower app: `flwr run .` sends it
to a SuperLink and to devices. A dropin is a Flower app whose ClientApp is one's own.
Exit codes as `simulations.run`.
"""

from __future__ import annotations

import keyword
import sys
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from cfl_flower.config.options import list_options
from cfl_flower.errors import ConfigError
from cfl_flower.settings import require
from simulations.shell.terminal import Parser, command, writable

KINDS = {
    "method": "strategy",
    "client": "strategy",
    "model": "model",
    "dataset": "dataset",
    "drift": "drift",
    "partition": "partition",
    "project": "strategy",
    "dropin": "strategy",
}
"""Kinds of parts, and the group of each one's settings."""

INSTALLED = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
"""Environment variable of Flower: 1 for what is installed where the SuperLink is."""

APPS = ("project", "dropin")
"""The kinds that have a folder of their own."""

PARTS = {"project": ("method", "project")}
"""The skeletons of a kind, if there are several."""


def write_skeleton(kind: str, name: str, folder: Path) -> list[Path]:
    """Write a part of one's own into a folder; return its files.

    Raises
    ------
    ConfigError
        If the name is taken, or cannot be that of a module, or a file is there already.
    """
    group = KINDS[kind]
    ok = name.isidentifier() and name.islower() and not keyword.iskeyword(name)
    require(ok, "NAME", name, "small letters, digits and _, as in my_method")
    taken = name in list_options(group) or find_spec(name) is not None
    require(not taken, "NAME", name, f"one that no {group} and no module has")
    words = name.split("_")
    values = {
        "name": name,
        "app_name": name.replace("_", "-"),  # as Flower wants it
        "class_name": "".join(word.title() for word in words),
        "title": " ".join(words).capitalize(),
    }
    texts = {}
    for part in PARTS.get(kind, (kind,)):
        skeleton = files("simulations") / "skeletons" / f"{part}.toml"
        for place, text in tomllib.loads(skeleton.read_text(encoding="utf-8")).items():
            path = folder / Template(place).substitute(values)
            texts[path] = Template(text).substitute(values)
    for path in texts:
        if path.exists():
            raise ConfigError(f"{path} is there already; choose another name")
    for path, text in texts.items():
        with writable("folder", path.parent, "change to a folder of your own"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return list(texts)


@command
def main(arguments: Sequence[str]) -> None:
    """Write the files and say how to use them."""
    parser = Parser("new", __doc__)
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    words = "of the module and its settings; of an app, its folder"
    parser.add_argument("name", metavar="NAME", help=words)
    asked = parser.parse_args(arguments)
    name = asked.name
    folder = Path()
    if asked.kind in APPS:
        folder = Path(name)
        name = folder.name.replace("-", "_")
    for path in write_skeleton(asked.kind, name, folder):
        print(path)
    if folder != Path():
        print(f"go there: cd {folder}")
    chosen = f"{KINDS[asked.kind]}={name}"
    if asked.kind == "dataset":
        chosen += " partition=dirichlet drift=none"
    tried = f"cfl-flower run {chosen}"
    if asked.kind == "dropin":
        run = "flwr run . --stream --federation-config num-supernodes=4"
        # For the SuperLink that Flower starts with the first run.
        tried = f"{INSTALLED}=1 {run}"
    print(f"try it:  {tried}\ntest it: python -m pytest test_{name}.py")
    if asked.kind in APPS:
        print(f"on a SuperLink of yours: {INSTALLED}=1 flwr run . --stream")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
