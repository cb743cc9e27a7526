"""Images that csv files list, with where, when or by whom they were taken."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from cfl_flower.data.reading.files import TestFraction, find
from cfl_flower.data.reading.pool import PARTS
from cfl_flower.data.reading.samples import BOX, ImageTable
from cfl_flower.errors import intact
from cfl_flower.settings import Count, settings

FMOW_CLASSES = """
airport airport_hangar airport_terminal amusement_park aquaculture archaeological_site
barn border_checkpoint burial_site car_dealership construction_site crop_field dam
debris_or_rubble educational_institution electric_substation factory_or_powerplant
fire_station flooded_road fountain gas_station golf_course ground_transportation_station
helipad hospital impoverished_settlement interchange lake_or_pond lighthouse
military_facility multi-unit_residential nuclear_powerplant office_building
oil_or_gas_facility park parking_lot_or_garage place_of_worship police_station port
prison race_track railway_bridge recreational_facility road_bridge runway shipyard
shopping_mall single-unit_residential smokestack solar_farm space_facility stadium
storage_tank surface_mine swimming_pool toll_booth tower tunnel_opening waste_disposal
water_treatment_facility wind_farm zoo
""".split()  # noqa: SIM905 - a line of quotes each would hide the names

FMOW_PARTS = {"train": "train", "val": "test", "test": "test"}


@settings("dataset")
class Fmow(ImageTable):
    """Functional Map of the World as WILDS distributes it: land use from satellites.

    ``fmow_v1.1/rgb_metadata.csv`` lists the images; line i, from 0, is
    ``fmow_v1.1/images/rgb_img_<i>.png``. The owner is the UTM zone, the time the day
    since 1970. Only images from 2015 on are kept, as in Fielding. The part ``train`` is
    for training, ``val`` and ``test`` for testing.
    """

    name: ClassVar[str] = "fmow"
    classes: ClassVar[int] = len(FMOW_CLASSES)
    patterns: ClassVar[tuple[str, ...]] = ("fmow_v1.1/rgb_metadata.csv",)

    def samples(self, data_dir: str) -> pd.DataFrame:
        """Return the images from 2015 on."""
        (path,) = find(data_dir, *self.patterns)
        rows = listing(path, ["split", "timestamp", "utm", "category"], [])
        names = {name: number for number, name in enumerate(FMOW_CLASSES)}
        # Images are numbered by line; those of the part "seq" are not handed out.
        rows["content"] = [f"fmow_v1.1/images/rgb_img_{n}.png" for n in rows.index]
        rows["part"] = rows["split"].map(FMOW_PARTS)
        rows = rows.dropna().rename(columns={"utm": "owner"})
        with intact(path):
            days = rows["timestamp"].str[:10].to_numpy().astype("datetime64[D]")
            labels = [names[name] for name in rows["category"]]
        rows = rows.assign(label=labels, time=days.astype(np.int64))
        return rows[days >= np.datetime64("2015-01-01")]


@settings("dataset")
class OpenImages(ImageTable):
    """Open Images by photographer, as FedScale distributes it.

    ``open_images/client_data_mapping/{train,test}.csv`` list the images in
    ``open_images/{train,test}``. The most frequent classes of the training mapping are
    kept, numbered in the order of FedScale's numbers, and the clients with samples of
    enough of them, as in Fielding. The owner is the client.
    """

    classes: Count = 100
    """The number of classes kept."""
    client_classes: Count = 10
    """The number of these that a client must have in the training mapping."""
    test_fraction: TestFraction | Literal[0] = 0
    """0: test on the test mapping's samples of the clients kept. Above: hold out this
    share of each client's training samples instead, where the test mapping has other
    clients."""
    name: ClassVar[str] = "open_images"

    def files(self) -> tuple[str, ...]:
        """Return the mappings that are used."""
        used = PARTS[:1] if self.test_fraction else PARTS
        return tuple(f"open_images/client_data_mapping/{part}.csv" for part in used)

    def samples(self, data_dir: str) -> pd.DataFrame:
        """Return the images of the classes and clients that are kept."""
        columns = {"client_id": "owner", "sample_path": "content", "label_id": "label"}
        found = []
        for file in self.files():
            path = Path(data_dir, file)
            rows = listing(path, [*columns], ["label_id"])
            rows = rows.rename(columns=columns).assign(part=path.stem)
            rows["content"] = f"open_images/{path.stem}/" + rows["content"]
            found.append(rows)
        train = found[0]
        counts = train["label"].value_counts().sort_index()
        # Ties go to the lower number.
        top = counts.sort_values(ascending=False, kind="stable").index[: self.classes]
        train = train[train["label"].isin(top)]
        variety = train.groupby("owner")["label"].nunique()
        owners = variety.index[variety >= self.client_classes]
        rows = pd.concat(found, ignore_index=True)
        rows = rows[rows["label"].isin(top) & rows["owner"].isin(owners)]
        rows = rows.assign(label=np.searchsorted(np.sort(top), rows["label"]))
        return rows.drop(columns="part") if self.test_fraction else rows


@settings("dataset")
class EkyaImages(ImageTable):
    """Objects in a camera's frames, as Ekya prepares them for classification."""

    test_fraction: TestFraction = 0.2
    """Share of each owner's samples held out for testing; the lists have no split."""

    @abstractmethod
    def listed(self, path: Path) -> pd.DataFrame:
        """Return the samples of one list, in the order of the frames."""

    def samples(self, data_dir: str) -> pd.DataFrame:
        """Return the samples of all lists, some of which repeat a part of others."""
        found = []
        for path in find(data_dir, *self.patterns):
            with intact(path):
                found.append(self.listed(path))
        return pd.concat(found).drop_duplicates(ignore_index=True)


@settings("dataset")
class Cityscapes(EkyaImages):
    """Cityscapes as Ekya prepares it: people and vehicles cut out of street scenes.

    ``cityscapes/sample_lists/citywise/<city>_fine.csv`` lists boxes in the images of
    ``cityscapes/leftImg8bit``: idx, imgpath, class, x0, y0, x1, y1, with or without a
    line of names. A city's samples in the order of its frames are cut into blocks, each
    an owner; the time is the number of the frame within the city.
    """

    block: Count = 100
    """Consecutive samples of a city that make an owner. Fielding says frames, but only
    blocks of samples come near its 217 clients: the cities have 3,475 frames."""
    name: ClassVar[str] = "cityscapes"
    classes: ClassVar[int] = 6
    patterns = ("cityscapes/sample_lists/citywise/*_fine.csv",)

    def listed(self, path: Path) -> pd.DataFrame:
        """Return the samples of one city, in the order of the frames."""
        integers = ["idx", "class", *BOX]
        columns = ["idx", "imgpath", "class", *BOX]
        rows = listing(path, columns, integers, header=False)
        # Ekya's list may hold other objects too, and drops them when it is read.
        rows = rows[rows["class"].between(0, self.classes - 1)]
        rows = rows.sort_values(["imgpath", "idx"], kind="stable")
        city = path.stem.removesuffix("_fine")
        blocks = np.arange(len(rows)) // self.block
        rows["owner"] = [f"{city}/{block:06d}" for block in blocks]
        rows["time"] = pd.factorize(rows["imgpath"], sort=True)[0]
        rows["content"] = "cityscapes/leftImg8bit/" + rows.pop("imgpath")
        return rows.drop(columns="idx").rename(columns={"class": "label"})


@settings("dataset")
class Waymo(EkyaImages):
    """Waymo Open as Ekya prepares it: objects cut out of a car's cameras' frames.

    ``waymo_classification_images/sample_lists/citywise/*_labels.csv`` list the images
    ``waymo_classification_images/<segment>/<camera name>/<image name>``. The owner is a
    camera of a segment; the time is the frame's number within the segment.
    """

    name: ClassVar[str] = "waymo"
    classes: ClassVar[int] = 4
    patterns = ("waymo_classification_images/sample_lists/citywise/*_labels.csv",)

    def listed(self, path: Path) -> pd.DataFrame:
        """Return the samples of one list, in the order of the frames."""
        texts = ["image name", "segment", "camera name"]
        integers = ["class", "frame index"]
        rows = listing(path, [*texts, *integers], integers)
        if not rows["class"].between(0, self.classes - 1).all():
            raise ValueError(f"a class is outside of 0 to {self.classes - 1}")
        rows["owner"] = rows["segment"] + "/" + rows["camera name"]
        folder = "waymo_classification_images/" + rows["owner"]
        rows["content"] = folder + "/" + rows["image name"]
        rows = rows.rename(columns={"class": "label", "frame index": "time"})
        return rows.drop(columns=texts).sort_values(["owner", "time"], kind="stable")


def listing(
    path: Path, columns: list[str], integers: list[str], header: bool = True
) -> pd.DataFrame:
    """Read columns of a csv: those to keep, or all if its first line may lack names.

    Raises `ConfigError` if a column is missing or a line is cut off.
    """
    with intact(path):
        read = pd.read_csv(
            path,
            header=0 if header else None,
            names=None if header else columns,
            usecols=columns,
            index_col=False,
            dtype=str,
            keep_default_na=False,
        )
        # Some tools write the names where others do not.
        named = (read[columns] == columns).all(axis=1)
        rows = read.loc[~named, columns].reset_index(drop=True)
        lacking = (rows == "").any(axis=1)
        if lacking.any():
            raise ValueError(f"row {lacking.argmax() + 1} is cut off")
        return rows.astype(dict.fromkeys(integers, int))
