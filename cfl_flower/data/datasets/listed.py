"""Images that csv files list, with where, when or by whom they were taken."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from cfl_flower.data.reading.files import (
    TestFraction,
    find,
    inside,
    intact,
    numbered,
    table,
)
from cfl_flower.data.reading.pool import PARTS
from cfl_flower.data.reading.samples import Crop, ImageTable, Sample, split
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

    def samples(self, data_dir: str) -> dict[str, list[Sample]]:
        """Return the samples of the two parts."""
        (path,) = find(data_dir, *self.patterns)
        rows = table(path, ("split", "timestamp", "utm", "category"))
        labels = numbered(FMOW_CLASSES)
        listed: dict[str, list[Sample]] = {part: [] for part in PARTS}
        with intact(path):
            for number, row in enumerate(rows):
                # The images of the fourth part, "seq", are not handed out.
                part = FMOW_PARTS.get(row["split"])
                day = np.datetime64(row["timestamp"][:10], "D")
                if part and day >= np.datetime64("2015-01-01"):
                    crop = Crop(path.parent / "images" / f"rgb_img_{number}.png")
                    label = labels[row["category"]]
                    time = int(day.astype(np.int64))
                    listed[part].append(Sample(crop, label, row["utm"], time))
        return listed


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

    def samples(self, data_dir: str) -> dict[str, list[Sample]]:
        """Return the samples of the two parts."""
        paths = [Path(data_dir, file) for file in self.files()]
        listed = {path.stem: _listed(path) for path in paths}
        counts = Counter(sample.label for sample in listed["train"])
        # Ties go to the lower number.
        top = sorted(counts, key=lambda label: (-counts[label], label))[: self.classes]
        label = {old: new for new, old in enumerate(sorted(top))}
        held = {(sample.owner, sample.label) for sample in listed["train"]}
        variety = Counter(owner for owner, old in held if old in label)
        kept = {
            part: [
                sample._replace(label=label[sample.label])
                for sample in samples
                if variety[sample.owner] >= self.client_classes
                and sample.label in label
            ]
            for part, samples in listed.items()
        }
        return split(kept["train"], self.test_fraction) if self.test_fraction else kept


def _listed(path: Path) -> list[Sample]:
    folder = path.parent.with_name(path.stem)
    samples = []
    with intact(path):
        for row in table(path, ("client_id", "sample_path", "label_id")):
            crop = Crop(inside(folder, row["sample_path"]))
            samples.append(Sample(crop, int(row["label_id"]), row["client_id"]))
    return samples


@settings("dataset")
class EkyaImages(ImageTable):
    """Objects in a camera's frames, as Ekya prepares them for classification."""

    test_fraction: TestFraction = 0.2
    """Share of each owner's samples held out for testing; the lists have no split."""

    @abstractmethod
    def listed(self, path: Path, root: Path) -> Iterable[Sample]:
        """Return the samples of one list, in the order of the frames."""

    def samples(self, data_dir: str) -> dict[str, list[Sample]]:
        """Return the samples of the two parts."""
        (lists,) = self.patterns
        root = Path(data_dir, Path(lists).parts[0])
        found = list[Sample]()
        for path in find(data_dir, lists):
            with intact(path):
                found.extend(self.listed(path, root))
        # Some lists repeat a part of others.
        return split(list(dict.fromkeys(found)), self.test_fraction)


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

    def listed(self, path: Path, root: Path) -> Iterator[Sample]:
        """Yield the samples of one city, in the order of the frames."""
        columns = ("idx", "imgpath", "class", "x0", "y0", "x1", "y1")
        rows = table(path, columns, header=False)
        # Ekya's list may hold other objects too, and drops them when it is read.
        rows = [row for row in rows if 0 <= int(row["class"]) < self.classes]
        rows.sort(key=lambda row: (row["imgpath"], int(row["idx"])))
        frame = numbered(row["imgpath"] for row in rows)
        city = path.stem.removesuffix("_fine")
        for place, row in enumerate(rows):
            image = row["imgpath"]
            owner = f"{city}/{place // self.block:06d}"
            box = int(row["x0"]), int(row["y0"]), int(row["x1"]), int(row["y1"])
            crop = Crop(inside(root / "leftImg8bit", image), box)
            yield Sample(crop, int(row["class"]), owner, frame[image])


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

    def listed(self, path: Path, root: Path) -> list[Sample]:
        """Return the samples of one list, in the order of the frames."""
        columns = ("image name", "class", "segment", "frame index", "camera name")
        samples = []
        for row in table(path, columns):
            owner = f"{row['segment']}/{row['camera name']}"
            label = int(row["class"])
            if not 0 <= label < self.classes:
                raise ValueError(f"a class is outside of 0 to {self.classes - 1}")
            crop = Crop(inside(root, f"{owner}/{row['image name']}"))
            samples.append(Sample(crop, label, owner, int(row["frame index"])))
        return sorted(samples, key=lambda sample: (sample.owner, sample.time))
