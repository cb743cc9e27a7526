"""Images that csv files list, with where, when or by whom they were taken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfl_flower.data.pool import Arrays
from cfl_flower.data.reading import (
    PARTS,
    Crop,
    FileDataset,
    held_out,
    images,
    intact,
    named,
    numbered,
    require_test_fraction,
    table,
)
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, settings


class Sample(NamedTuple):
    """One line of a listing.

    Attributes
    ----------
    crop : Crop
    label : int
    owner : str
    time : int
        In the dataset's own unit.
    """

    crop: Crop
    label: int
    owner: str
    time: int = 0


@settings("dataset")
class ListedImages(FileDataset):
    """A dataset whose csv files list images."""

    size: Count = 64
    """Height and width to which images are resized."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return (3, self.size, self.size)

    def samples(self, data_dir: str) -> Mapping[str, list[Sample]]:
        """Return the samples of the two parts.

        Raises
        ------
        ConfigError
        """
        raise NotImplementedError

    def arrays(self, data_dir: str) -> Arrays:
        """Read the listed images; owners are numbered by name over both parts.

        Raises
        ------
        ConfigError
        """
        listed = self.samples(data_dir)
        for part, samples in listed.items():
            if not samples:
                raise ConfigError(
                    f"{self.name} in data_dir={data_dir} has no sample for the {part} "
                    "part that meets the dataset's conditions"
                )
        number = numbered(sample.owner for part in listed.values() for sample in part)
        arrays: dict[str, NDArray[Any]] = {}
        for part, samples in listed.items():
            columns = {
                "y": [sample.label for sample in samples],
                "owner": [number[sample.owner] for sample in samples],
                "time": [sample.time for sample in samples],
            }
            arrays |= named(
                part,
                x=images((sample.crop for sample in samples), self.shape),
                **{name: np.asarray(of, np.int64) for name, of in columns.items()},
            )
        return arrays


def split(samples: list[Sample], fraction: float) -> dict[str, list[Sample]]:
    """Hold out a share of each owner's samples for testing."""
    number = numbered(sample.owner for sample in samples)
    owners = np.asarray([number[sample.owner] for sample in samples], np.int64)
    test = held_out(owners, fraction)
    return {
        part: [samples[row] for row in np.flatnonzero(test == (part == "test"))]
        for part in PARTS
    }


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


@settings("dataset")
class Fmow(ListedImages):
    """Functional Map of the World as WILDS distributes it: land use from satellites.

    ``fmow_v1.1/rgb_metadata.csv`` lists the images; line i, from 0, is
    ``fmow_v1.1/images/rgb_img_<i>.png``. The owner is the UTM zone, the time the day
    since 1970. Only images from 2015 on are kept, as in Fielding. The part ``train`` is
    for training, ``val`` and ``test`` for testing.
    """

    name: ClassVar[str] = "fmow"
    classes: ClassVar[int] = len(FMOW_CLASSES)
    parts: ClassVar[Mapping[str, str]] = {
        "train": "train",
        "val": "test",
        "test": "test",
    }

    def files(self) -> tuple[str, ...]:
        """Return the listing."""
        return ("fmow_v1.1/rgb_metadata.csv",)

    def samples(self, data_dir: str) -> dict[str, list[Sample]]:
        """Return the samples of the two parts.

        Raises
        ------
        ConfigError
        """
        root = Path(data_dir, "fmow_v1.1")
        path = root / "rgb_metadata.csv"
        rows = table(path, ("split", "timestamp", "utm", "category"))
        labels = {name: label for label, name in enumerate(FMOW_CLASSES)}
        listed: dict[str, list[Sample]] = {part: [] for part in PARTS}
        with intact(path):
            first = np.datetime64("2015-01-01", "D")
            for number, row in enumerate(rows):
                # The images of the fourth part, "seq", are not handed out.
                part = self.parts.get(row["split"])
                if part is None:
                    continue
                day = np.datetime64(row["timestamp"][:10], "D")
                if day >= first:
                    crop = Crop(root / "images" / f"rgb_img_{number}.png")
                    label = labels[row["category"]]
                    time = int(day.astype(np.int64))
                    listed[part].append(Sample(crop, label, row["utm"], time))
        return listed


@settings("dataset")
class OpenImages(ListedImages):
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
    test_fraction: float = 0.0
    """0: test on the test mapping's samples of the clients kept. Above: hold out this
    share of each client's training samples instead, where the test mapping has other
    clients."""
    name: ClassVar[str] = "open_images"

    def __post_init__(self) -> None:
        if self.test_fraction:
            require_test_fraction(self.test_fraction)

    def files(self) -> tuple[str, ...]:
        """Return the mappings that are used."""
        used = PARTS[:1] if self.test_fraction else PARTS
        return tuple(f"open_images/client_data_mapping/{part}.csv" for part in used)

    def samples(self, data_dir: str) -> dict[str, list[Sample]]:
        """Return the samples of the two parts.

        Raises
        ------
        ConfigError
        """
        listed = {
            Path(file).stem: self._listed(data_dir, file) for file in self.files()
        }
        counts = Counter(sample.label for sample in listed["train"])
        # Ties go to the lower number.
        top = sorted(counts, key=lambda label: (-counts[label], label))[: self.classes]
        label = {old: new for new, old in enumerate(sorted(top))}
        seen = defaultdict(set)
        for sample in listed["train"]:
            if sample.label in label:
                seen[sample.owner].add(sample.label)
        clients = {
            owner
            for owner, labels in seen.items()
            if len(labels) >= self.client_classes
        }
        kept = {
            part: [
                sample._replace(label=label[sample.label])
                for sample in samples
                if sample.owner in clients and sample.label in label
            ]
            for part, samples in listed.items()
        }
        return split(kept["train"], self.test_fraction) if self.test_fraction else kept

    @staticmethod
    def _listed(data_dir: str, file: str) -> list[Sample]:
        path = Path(data_dir, file)
        folder = Path(data_dir, "open_images", path.stem)
        rows = table(path, ("client_id", "sample_path", "label_id"))
        with intact(path):
            return [
                Sample(
                    Crop(folder / row["sample_path"]),
                    int(row["label_id"]),
                    row["client_id"],
                )
                for row in rows
            ]
