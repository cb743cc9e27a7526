"""Where people already look at runs: TensorBoard, MLflow, Weights & Biases.

The JSON lines of a run stay the source; loggers get the same numbers after each round.
"""

from __future__ import annotations

import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from cfl_flower.errors import intact, named
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.callbacks import Callback, Rows
from cfl_flower.runs.record import RoundRecord
from cfl_flower.settings import require_package, settings
from cfl_flower.state import ClusteredState

Warn: TypeAlias = Callable[[str], None]
"""Shows a warning."""


@settings("logger")
class Logger(ABC):
    """Gets the numbers of each round."""

    package: ClassVar[str]
    """Package that must be installed."""
    quiet: ClassVar[dict[str, str]] = {}
    """Variables by which the package tells its makers nothing of its use."""

    def check(self) -> None:
        """Require the logger's package, or raise `ConfigError`."""
        name = type(self).__name__.lower()
        require_package(self.package, "logger", name)

    @abstractmethod
    def open(self, config: RunConfig, done: int) -> Any:
        """Return a context with a `Callback`, for a run with ``done`` rounds behind."""


@settings("logger")
class NoLogger(Logger):
    """Logs nothing."""

    def check(self) -> None:
        """Do nothing: there is no package."""

    @contextmanager
    def open(self, config: RunConfig, done: int) -> Iterator[Callback]:
        """Return a callback that does nothing."""
        yield lambda record, rows, state: None


@settings("logger")
class TensorBoard(Logger):
    """Writes numbers for TensorBoard.

    On resume, events of rounds after the ``done`` ones are dropped.
    """

    package: ClassVar[str] = "tensorboard"

    @contextmanager
    def open(self, config: RunConfig, done: int) -> Iterator[Callback]:
        """Open ``output_dir``/tensorboard."""
        # Slow to import.
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        folder = Path(config.output_dir, "tensorboard")
        with SummaryWriter(str(folder), purge_step=done + 1) as writer:

            def write(record: RoundRecord, rows: Rows, state: ClusteredState) -> None:
                for key, value in numbers(record).items():
                    writer.add_scalar(key, value, record.round)
                writer.flush()

            yield write


@settings("logger")
class Mlflow(Logger):
    """Logs to an MLflow tracking server or database.

    A run that is continued goes on as the same run of MLflow.
    """

    uri: str | None = None
    """The tracking server or database; null for MLflow's own choice, which
    MLFLOW_TRACKING_URI makes."""
    experiment: str = "cfl-flower"
    """Name of the experiment in MLflow."""
    package: ClassVar[str] = "mlflow"
    quiet: ClassVar[dict[str, str]] = {"MLFLOW_DISABLE_TELEMETRY": "true"}

    @contextmanager
    def open(self, config: RunConfig, done: int) -> Iterator[Callback]:
        """Open the run whose tag is the output folder."""
        import pandas as pd
        from mlflow import MlflowClient  # noqa: PLC0415
        from mlflow.entities import Metric, Param  # noqa: PLC0415

        client = MlflowClient(tracking_uri=self.uri)
        known = client.get_experiment_by_name(self.experiment)
        number = (
            known.experiment_id if known else client.create_experiment(self.experiment)
        )
        folder = config.output_dir
        key = blake2b(folder.encode(), digest_size=8).hexdigest()
        found = client.search_runs([number], f"tags.folder = '{key}'") if done else []
        if found:
            run = found[0].info.run_id
            client.update_run(run, "RUNNING")
        else:
            tags = {"output_dir": folder, "folder": key}
            name = Path(folder).name
            run = client.create_run(number, run_name=name, tags=tags).info.run_id
            (flat,) = pd.json_normalize(config.resolved).to_dict("records")
            params = [Param(str(key), str(value)) for key, value in flat.items()]
            client.log_batch(run, params=params)

        def write(record: RoundRecord, rows: Rows, state: ClusteredState) -> None:
            now = int(1000 * time.time())
            found = numbers(record)
            metrics = [Metric(k, v, now, record.round) for k, v in found.items()]
            client.log_batch(run, metrics=metrics)

        try:
            yield write
        except BaseException:
            client.set_terminated(run, "FAILED")
            raise
        client.set_terminated(run)


@settings("logger")
class Wandb(Logger):
    """Logs to Weights & Biases.

    A run that is continued goes on as the same run there.
    """

    project: str = "cfl-flower"
    """The project of Weights & Biases."""
    mode: Literal["offline", "online"] = "offline"
    """Offline writes files to ``output_dir``/wandb, for `wandb sync`."""
    package: ClassVar[str] = "wandb"
    quiet: ClassVar[dict[str, str]] = {"WANDB_ERROR_REPORTING": "false"}

    @contextmanager
    def open(self, config: RunConfig, done: int) -> Iterator[Callback]:
        """Open the run that is named by the output folder."""
        import wandb  # noqa: PLC0415

        folder = config.output_dir
        run = wandb.init(
            project=self.project,
            name=Path(folder).name,
            id=blake2b(folder.encode(), digest_size=8).hexdigest(),
            resume="allow" if done and self.mode == "online" else None,
            mode=self.mode,
            dir=folder,
            config=config.resolved,
            settings=wandb.Settings(silent=True),
        )
        with run:

            def write(record: RoundRecord, rows: Rows, state: ClusteredState) -> None:
                run.log(numbers(record), step=record.round)

            yield write


def numbers(record: RoundRecord) -> dict[str, float]:
    """Return what was measured in a round and is one number."""
    row = record.row() | {"failures": len(record.failures)}
    return {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, Real) and key != "round"
    }


@contextmanager
def open_logger(config: RunConfig, done: int, warn: Warn) -> Iterator[Callback]:
    """Open a run's logger, whose later failures cost no run but a warning.

    After the first it gets no more rounds. Raises `ConfigError` if it cannot be opened.
    """
    name = config.names["logger"]
    for variable, value in config.logger.quiet.items():
        os.environ.setdefault(variable, value)
    opened = config.logger.open(config, done)
    with intact(f"logger={name}", "fix it, or use logger=none", "opened"):
        write = opened.__enter__()
    works = True

    def write_while_it_works(
        record: RoundRecord, rows: Rows, state: ClusteredState
    ) -> None:
        nonlocal works
        if works:
            works = False
            with _forgiven(name, warn):
                write(record, rows, state)
                works = True

    try:
        yield write_while_it_works
    finally:
        with _forgiven(name, warn):
            opened.__exit__(*sys.exc_info())


@contextmanager
def _forgiven(name: str, warn: Warn) -> Iterator[None]:
    """Turn whatever goes wrong into a warning."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        warn(
            f"logger={name} failed and gets no more rounds ({named(error)}); the run "
            "goes on, and its files are complete"
        )
