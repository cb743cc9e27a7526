import gzip
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import conf
from cfl_flower.building import build
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import owners, times

PETS = """age,kind,label
1,cat,good
2,ant,bad
3,cat,good
4,ant,bad
5,bee,good
6,bee,bad
"""


ROWS = "".join(f"{row / 7:.2f},{row % 5},{row % 3}\n" for row in range(60))
LONG = f"a,b,label\n{ROWS}"


def write(folder: Path, text: str | bytes, name: str = "data.csv") -> str:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder)


def test_numbers_stay_and_texts_become_one_input_each(tmp_path):
    folder = write(tmp_path, PETS)
    table = Csv(test_fraction=0.34, standardise=False)
    known = table.complete(folder)
    assert (known.shape, known.names) == ((4,), ("bad", "good"))
    train, test = known.load(folder)
    rows = np.concatenate([train.x, test.x])
    # The columns are age, ant, bee, cat.
    assert sorted(rows[:, 0].tolist()) == [1, 2, 3, 4, 5, 6]
    assert rows[:, 0].tolist() == [*(train.rows + 1), *(test.rows + 1)]
    kinds = {int(row[0]): row[1:].tolist() for row in rows}
    assert kinds[1] == [0, 0, 1]
    assert kinds[2] == [1, 0, 0]
    assert kinds[5] == [0, 1, 0]
    assert sorted(test.labels.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        (PETS, {"label": "species"}, "label=species is no .* here: age, kind, label"),
        (PETS, {"features": ("size",)}, "features=size is no column"),
        (PETS.replace("3,cat", "inf,cat"), {}, "age in 1 of 6 rows"),
        (PETS, {"periods": 4}, "periods=4 .* use 1 without dataset.time"),
        (PETS.replace("3,cat", "old,cat"), {}, "row 3 has age=old, which is no finite"),
        (PETS, {"missing": "median"}, "missing=median .* use refuse or drop or mean"),
        ("age,label\n", {}, "for the train part has no row; add samples"),
        ("", {}, "cannot be read .*save it again"),
        ("a,label\n1,x\n2,y,z\n", {}, "cannot be read .*save it again"),
        ("label\nx\ny\n", {}, "no column but label; add columns of inputs"),
        (",age,label\n0,1,x\n1,2,y\n", {}, "csv has no name for column 1, .* index"),
        (PETS, {"features": ("age", "label")}, "use columns without label"),
        (PETS, {"features": ("age", "age")}, "use columns without label, each once"),
        ("a,a,label\n1,2,x\n", {}, "several columns are called a"),
        ("a,label\n1e39,x\n2,y\n", {}, "row 1 has a=1e"),
        ("a,label\n1,x\n2,x\n", {}, "one class only: x; add samples of another"),
        (f"{LONG}1,2,3,4\n", {}, "Expected 3 fields in line 62, saw 4"),
        (f"# my data\n{LONG}", {}, "Length of header"),
        (gzip.compress(LONG.encode()), {}, "save it again as UTF-8 text"),
        (LONG.replace(",", "||"), {"separator": "||"}, "dataset.separator"),
        (
            LONG.replace(",", ";").replace("0.43", "-1.474"),
            {"separator": ";", "decimal": "comma"},
            "row 4 has a=-1.474, which has a mark between thousands, or a point",
        ),
        (
            LONG.replace("a,b", "a,code").replace(",4,", ",V27,"),
            {},
            "row 5 has code=V27, .* if these are codes, write a letter before each",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(text, settings, words, tmp_path, recwarn):
    with pytest.raises(ConfigError, match=words) as error:
        Csv(**settings).load(write(tmp_path, text))
    assert "\n" not in str(error.value)
    assert not recwarn


def test_a_column_that_the_test_file_lacks_or_adds(tmp_path):
    write(tmp_path, "age,label\n9,good\n", "less.csv")
    write(tmp_path, "age,kind,more,label\n9,cat,1,good\n", "more.csv")
    folder = write(tmp_path, PETS)
    with pytest.raises(ConfigError, match=r"=kind is no column of less\.csv"):
        Csv(test_file="less.csv").load(folder)
    assert Csv(test_file="more.csv").load(folder)[1].x.shape == (1, 4)


def test_tabs_decimal_commas_and_other_characters_are_read(tmp_path):
    text = "höhe\tlabel\n1,5\tgut\n2,5\tübel\n3,5\tgut\n4,5\tübel\n"
    (tmp_path / "data.csv").write_bytes(text.encode("latin-1"))
    form: dict[str, Any] = {"separator": "tab", "decimal": "comma"}
    table = Csv(**form, encoding="latin-1", standardise=False, test_fraction=0.5)
    known = table.complete(str(tmp_path))
    assert known.names == ("gut", "übel")
    train, test = known.load(str(tmp_path))
    found = torch.cat([train.x, test.x]).flatten().tolist()
    assert sorted(found) == [1.5, 2.5, 3.5, 4.5]
    with pytest.raises(ConfigError, match=r"data\.csv cannot be read"):
        Csv(**form).load(str(tmp_path))


@pytest.mark.parametrize("written", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize("named", ["NFC", "NFD"])
def test_a_column_is_known_by_its_name_however_accents_are_written(
    written, named, tmp_path
):
    text = "höhe,güte,größe,é\n1,good,3,4\n2,bad,4,3\n3,good,4,3\n4,bad,3,4\n"
    folder = write(tmp_path, normalize(written, text))  # type: ignore[arg-type]
    names: dict[str, Any] = {"label": "güte", "owner": " größe", "time": "é"}
    own = {key: normalize(named, name) for key, name in names.items()}  # type: ignore[arg-type]
    features = (normalize(named, "höhe"),)  # type: ignore[arg-type]
    table = Csv(**own, features=features, standardise=False).complete(folder)
    train, test = table.load(folder)
    assert table.names == ("bad", "good")
    assert sorted(torch.cat([train.x, test.x]).flatten().tolist()) == [1, 2, 3, 4]
    assert {*times(train), *times(test)} == {3, 4}


def options(name: str) -> dict[str, Any]:
    """Return the settings of an option of the group."""
    text = Path(conf.__path__[0], "dataset", f"{name}.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_elec2_is_read_in_the_order_of_its_lines(tmp_path):
    names = "date,day,period,nswprice,nswdemand,vicprice,vicdemand,transfer,class"
    end = ("DOWN", "UP")
    lines = [
        f"0.{i:03},{i % 7 + 1},{i % 48 / 47},0.05,0.4,0.003,0.4,{i},{end[i % 2]}"
        for i in range(100)
    ]
    folder = write(tmp_path, "\n".join([names, *lines]), "electricity.csv")
    table = build(options("elec2")).complete(folder)
    train, test = table.load(folder)
    assert (table.shape, table.names) == ((7,), ("DOWN", "UP"))
    assert sorted([*times(train), *times(test)]) == list(range(100))
    # Transfer grows: of its first tenth the mean is 0.
    first = times(train) < 10
    assert train.x[first, 6].mean().item() == pytest.approx(0, abs=1e-5)
    assert train.x[~first, 6].min() > train.x[first, 6].max()


@pytest.fixture
def listed(tmp_path: Path) -> str:
    """Return a folder with images and two lists of them."""
    (tmp_path / "wild" / "train").mkdir(parents=True)
    lines = {part: ["where,filename,datetime,y"] for part in ("train", "test")}
    for i in range(12):
        image = Image.new("RGB", (8, 8), (20 * i, 0, 0))
        image.save(tmp_path / "wild" / "train" / f"{i}.png")
        row = f"{'ab'[i % 2]},{i}.png,2020-01-{i + 1:02},{i // 2 % 2}"
        lines[("train", "train", "test")[i % 3]].append(row)
    for part, rows in lines.items():
        write(tmp_path / "wild", "\n".join(rows), f"{part}.csv")
    return str(tmp_path)


WILD: dict[str, Any] = {
    **{"file": "wild/train.csv", "test_file": "wild/test.csv", "folder": "train"},
    "size": 4,
    **{"image": "filename", "label": "y", "owner": "where", "time": "datetime"},
}


@pytest.mark.parametrize(
    ("train_times", "test_times", "first"),
    [
        (range(41), range(41), range(21)),
        (range(20), range(20, 40), range(20)),
        (range(20, 40), range(10, 20), range(20, 25)),
    ],
)
def test_the_first_of_equal_parts_of_all_the_time_there_is_known(
    train_times, test_times, first, tmp_path
):
    for name, each in {"train.csv": train_times, "test.csv": test_times}.items():
        rows = [f"{time},{time**2},{time % 2}" for time in each]
        write(tmp_path, "\n".join(["t,x,label", *rows]), name)
    own = {"time": "t", "periods": 2, "standardise": "pooled"}
    table = Csv(file="train.csv", test_file="test.csv", **own)
    train, _ = table.load(str(tmp_path))
    known = train.x[np.isin(times(train), first)].double()
    assert known.mean().item() == pytest.approx(0, abs=1e-6)
    assert known.std(correction=0).item() == pytest.approx(1, abs=1e-6)


def test_images_that_a_csv_lists_have_owners_and_times(listed):
    table = build({**options("image_csv"), **WILD}).complete(listed)
    train, test = table.load(listed)
    assert table.shape == (3, 4, 4)
    assert (len(train.labels), len(test.labels)) == (8, 4)
    assert test.x[:, 0, 0, 0].tolist() == [40, 100, 160, 220]
    assert owners(test).tolist() == [0, 1, 0, 1]
    assert np.diff(np.unique(times(train))).min() == 86_400 * 10**6


@pytest.mark.parametrize("folder", ["../elsewhere", "/tmp"])
def test_no_image_outside_of_the_list_s_folder_is_read(listed, folder):
    table = build({**options("image_csv"), **WILD, "folder": folder})
    with pytest.raises(ConfigError, match="which is no file below"):
        table.load(listed)


def test_a_column_called_row_stays_a_column(tmp_path):
    lines = [f"{i},{100 - i},{i % 2}" for i in range(20)]
    folder = write(tmp_path, "\n".join(["a,row,label", *lines]))
    train, _ = Csv(time="row").load(folder)
    assert times(train).max() == 100
    assert train.x.shape[1] == 1


def test_without_times_each_file_counts_its_own_rows(tmp_path):
    write(tmp_path, LONG, "test.csv")
    pools = Csv(time="row", test_file="test.csv").load(write(tmp_path, LONG))
    for pool in pools:
        assert times(pool).tolist() == pool.rows.tolist() == [*range(60)]
