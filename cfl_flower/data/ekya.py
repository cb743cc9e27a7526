"""Objects in a camera's frames, from lists in the layout that Ekya prepares."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from cfl_flower.data.reading import TestFraction, find, intact, numbered, table
from cfl_flower.data.samples import ColourImages, Crop, Sample, split
from cfl_flower.settings import Count, settings


@settings("dataset")
class EkyaImages(ColourImages):
    """Objects in a camera's frames, as Ekya prepares them for classification."""

    test_fraction: TestFraction = 0.2
    """Share of each owner's samples held out for testing; the lists have no split."""
    columns: ClassVar[tuple[str, ...]]

    def listed(self, path: Path, root: Path) -> list[Sample]:
        """Return the samples of one list, in the order of the frames."""
        raise NotImplementedError

    def samples(self, data_dir: str) -> dict[str, list[Sample]]:
        """Return the samples of the two parts."""
        (pattern,) = self.files()
        root = Path(data_dir, Path(pattern).parts[0])
        found = [
            sample
            for path in find(data_dir, pattern)
            for sample in self.listed(path, root)
        ]
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
    columns = ("idx", "imgpath", "class", "x0", "y0", "x1", "y1")

    def files(self) -> tuple[str, ...]:
        """Return the lists, one per city."""
        return ("cityscapes/sample_lists/citywise/*_fine.csv",)

    def listed(self, path: Path, root: Path) -> list[Sample]:
        """Return the samples of one city, in the order of the frames."""
        city, images = path.stem.removesuffix("_fine"), root / "leftImg8bit"
        rows = table(path, self.columns, header=False)
        with intact(path):
            # Ekya's list may hold other objects too, and drops them when it is read.
            rows = [row for row in rows if 0 <= int(row["class"]) < self.classes]
            rows.sort(key=lambda row: (row["imgpath"], int(row["idx"])))
            frame = numbered(row["imgpath"] for row in rows)
            samples = []
            for place, row in enumerate(rows):
                image, label = row["imgpath"], int(row["class"])
                box = int(row["x0"]), int(row["y0"]), int(row["x1"]), int(row["y1"])
                owner = f"{city}/{place // self.block:06d}"
                crop = Crop(images / image, box)
                samples.append(Sample(crop, label, owner, frame[image]))
            return samples


@settings("dataset")
class Waymo(EkyaImages):
    """Waymo Open as Ekya prepares it: objects cut out of a car's cameras' frames.

    ``waymo_classification_images/sample_lists/citywise/*_labels.csv`` list the images
    ``waymo_classification_images/<segment>/<camera name>/<image name>``. The owner is a
    camera of a segment; the time is the frame's number within the segment.
    """

    name: ClassVar[str] = "waymo"
    classes: ClassVar[int] = 4
    columns = ("image name", "class", "segment", "frame index", "camera name")

    def files(self) -> tuple[str, ...]:
        """Return the lists."""
        return ("waymo_classification_images/sample_lists/citywise/*_labels.csv",)

    def listed(self, path: Path, root: Path) -> list[Sample]:
        """Return the samples of one list, in the order of the frames."""
        samples = []
        with intact(path):
            for row in table(path, self.columns):
                owner = f"{row['segment']}/{row['camera name']}"
                crop = Crop(root / owner / row["image name"])
                label, time = int(row["class"]), int(row["frame index"])
                samples.append(Sample(crop, label, owner, time))
            if any(not 0 <= sample.label < self.classes for sample in samples):
                raise ValueError(f"a class is outside of 0 to {self.classes - 1}")
        return sorted(samples, key=lambda sample: (sample.owner, sample.time))
