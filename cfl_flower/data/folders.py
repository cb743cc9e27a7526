"""Images in a folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from cfl_flower.data.samples import ColourImages, Crop, ImageTable, Sample
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, settings

SUFFIXES = (".png", ".jpg", ".jpeg")


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder, in the order of their names."""
    return sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)


def class_folders(folder: Path) -> dict[str, Path]:
    """Return the folders in a folder by name, in the order of the names."""
    return {
        path.name: path
        for path in sorted(folder.glob("*/"))
        if not path.name.startswith(".")
    }


class ClassFolders(ImageTable):
    """A dataset in ``<data_dir>/<folder>/<part>/<class>/*.png`` or ``*.jpg``.

    Classes are numbered by name.
    """

    folder: ClassVar[str]

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Return the folders that make up the training and the test set."""
        return {"train": ("train",), "test": ("test",)}

    def files(self) -> tuple[str, ...]:
        """Return the class folders: they change when a file comes or goes.

        So a start need not look at each of 270,000 files.
        """
        sources = (source for some in self.sources().values() for source in some)
        return tuple(f"{self.folder}/{source}/*/" for source in sources)

    def samples(self, data_dir: str) -> dict[str, list[Sample]]:
        """Return the images, by the names of their classes and files."""
        root = Path(data_dir, self.folder)
        names = list(class_folders(root / "train"))
        if len(names) != self.classes:
            raise ConfigError(
                f"{root / 'train'} has {len(names)} class folders; {self.name} has "
                f"{self.classes} classes"
            )
        return {
            part: [s for source in sources for s in _listed(root / source, names)]
            for part, sources in self.sources().items()
        }


def _listed(folder: Path, names: list[str]) -> list[Sample]:
    found = class_folders(folder)
    differ = sorted(set(names) ^ set(found))
    if differ:
        raise ConfigError(
            f"{folder} has other class folders than the training set: "
            f"{', '.join(differ[:5])}"
        )
    files = {name: image_files(found[name]) for name in names}
    for name, paths in files.items():
        if not paths:
            raise ConfigError(
                f"{found[name]} has no image; put {', '.join(SUFFIXES)} files there"
            )
    return [
        Sample(Crop(path), label)
        for label, name in enumerate(names)
        for path in files[name]
    ]


@settings("dataset")
class Cinic10(ClassFolders):
    """CINIC-10: 270,000 photographs, 32x32, colour, in three parts of 90,000."""

    add_valid: bool = False
    """Train on the validation part as well."""
    name: ClassVar[str] = "cinic10"
    folder: ClassVar[str] = "CINIC-10"
    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)
    classes: ClassVar[int] = 10

    def sources(self) -> dict[str, tuple[str, ...]]:
        """Return the folders that make up the training and the test set."""
        train = ("train", "valid") if self.add_valid else ("train",)
        return {"train": train, "test": ("test",)}


@settings("dataset")
class MiniImagenet(ClassFolders, ColourImages):
    """mini-ImageNet: 60,000 photographs of 100 classes, colour.

    Both parts hold all classes, unlike the split for few-shot learning.
    """

    size: Count = 84
    """Height and width to which images are resized."""
    classes: Count = 100
    """Number of class folders."""
    name: ClassVar[str] = "mini_imagenet"
    folder: ClassVar[str] = "mini-imagenet"
