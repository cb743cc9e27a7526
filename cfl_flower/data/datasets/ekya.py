"""Objects in a camera's frames, from lists in the layout that Ekya prepares."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from cfl_flower.data.reading.files import (
    TestFraction,
    find,
    inside,
    intact,
    numbered,
    table,
)
from cfl_flower.data.reading.samples import ColourImages, Crop, Sample, split
from cfl_flower.settings import Count, settings


@settings("dataset")
class EkyaImages(ColourImages):
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
