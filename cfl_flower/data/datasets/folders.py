"""Images in a folder per class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from cfl_flower.data.reading.inferred import InferredDataset, noted
from cfl_flower.data.reading.pictures import Crop, images
from cfl_flower.data.reading.pool import PARTS, Arrays, Parts
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, settings

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"),
    *(".apng", ".jfif", ".jpe"),
)
"""Suffixes of the formats that are read."""


OF_SYSTEMS = {"__MACOSX", "@eaDir", "lost+found", "Thumbs.db", "desktop.ini"}
"""Names that systems leave in folders, beside hidden files."""


def is_left(name: str) -> bool:
    """Return whether a file or folder is none of the user's."""
    return name.startswith(".") or name in OF_SYSTEMS


def image_files(folder: Path) -> list[Path]:
    """Return a folder's images by name; those deeper in it are a `ConfigError`."""
    found = [path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES]
    found = [p for p in found if not any(map(is_left, p.relative_to(folder).parts))]
    if deeper := {path.parent for path in found} - {folder}:
        raise ConfigError(
            f"images in {min(deeper)} would not be read; move them into {folder}, or "
            "call the folders of two parts train and test"
        )
    return sorted(found)


def class_folders(folder: Path) -> dict[str, Path]:
    """Return the folders in a folder by name, in the order of the names."""
    return {p.name: p for p in sorted(folder.glob("*/")) if not is_left(p.name)}


def class_images(folder: Path) -> dict[str, list[Path]]:
    """Return the images of each class folder, or raise `ConfigError` without any."""
    files = {name: image_files(path) for name, path in class_folders(folder).items()}
    for name, paths in files.items():
        if not paths:
            fault = f"{folder / name} has no image"
            remedy = f"put {', '.join(SUFFIXES)} files there, or remove it if no class"
            raise ConfigError(f"{fault}; {remedy}")
    return files


@settings("dataset")
class ImageFolder(InferredDataset):
    """Images of one's own: ``<folder>/<class>/*.png``, or with a test set beside.

    With the folders ``train`` and ``test`` in it, each of them has a folder per class.
    """

    folder: str = "images"
    """Absolute, or below data_dir."""
    size: Count = 32
    """Height and width to which images are resized."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for colour."""
    name: ClassVar[str] = "the folder of images"
    remedy: ClassVar[str] = (
        "put images in folders of classes there, or set dataset.folder, and data_dir=. "
        "if it is in the current folder"
    )

    def files(self) -> tuple[str, ...]:
        """Return the class folders, which change when a file comes or goes."""
        return (f"{self.folder}/*/", f"{self.folder}/*/*")

    def read(self, data_dir: str) -> Parts:
        """Read the images."""
        root = Path(data_dir, self.folder)
        roots = {part: root / part for part in PARTS if (root / part).is_dir()}
        if len(roots) < len(PARTS):
            roots = {"train": root}
        files = {part: class_images(folder) for part, folder in roots.items()}
        parts: Parts = {part: self._read(of) for part, of in files.items()}
        read = {path for of in files.values() for some in of.values() for path in some}
        others = [p.relative_to(root) for p in root.rglob("*") if p not in read]
        left = [
            p for p in others if not any(map(is_left, p.parts)) and (root / p).is_file()
        ]
        if not left:
            return parts
        found = f"{len(left)} files are not read, such as {min(left)}"
        return noted(parts, f"{self.name}: {found}")

    def _read(self, files: Mapping[str, list[Path]]) -> Arrays:
        crops = [Crop(path) for paths in files.values() for path in paths]
        names = [name for name, paths in files.items() for _ in paths]
        shape = (self.channels, self.size, self.size)
        return {"x": images(crops, shape), "y": np.asarray(names, str)}
