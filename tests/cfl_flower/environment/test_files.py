from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cfl_flower.environment.files import (
    append_durably,
    link_out,
    remove_leftovers,
    sync_folder,
    write_atomically,
)


def test_a_file_is_replaced_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Note which files and folders reach the disk, in their order."""
    found: list[Path] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_a_file_is_synced_before_its_name(tmp_path: Path, synced: list[Path]) -> None:
    write_atomically(tmp_path / "file", b"new")
    temporary, folder = synced
    assert temporary.name.endswith(".tmp")
    assert folder == tmp_path


def test_what_a_killed_process_left_is_removed_wherever_it_is(tmp_path: Path) -> None:
    below = tmp_path / "clients" / "3"
    below.mkdir(parents=True)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    left = [f"..token.{gone.pid}.tmp", f".summary.json.{gone.pid}.tmp"]
    # Of another process that goes on, and files of other kinds.
    kept = [
        f".own.{os.getpid()}.tmp",
        ".report.html.1.tmp",
        ".own.tmp",
        "own.7.tmp",
        ".x.²².tmp",
        f".x.{10**12}.tmp",
    ]
    for name in (*left, *kept):
        (tmp_path / name).touch()
        (below / name).touch()
    (tmp_path / f".folder.{gone.pid}.tmp").mkdir()
    remove_leftovers(tmp_path)
    for folder in (tmp_path, below):
        assert {each.name for each in folder.iterdir() if each.is_file()} == {*kept}


def test_appended_text_is_synced_to_disk(tmp_path: Path, synced: list[Path]) -> None:
    path = tmp_path / "lines"
    append_durably(path, "one\n")
    append_durably(path, "two µ\n")
    assert path.read_text(encoding="utf-8") == "one\ntwo µ\n"
    assert synced == [path, path]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_folder_without_sync_is_ignored_but_a_disk_error_is_raised(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        del descriptor
        raise OSError(code, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    if code == errno.EINVAL:
        sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match="no"):
            sync_folder(tmp_path)


def test_files_are_written_on_systems_that_cannot_open_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_DIRECTORY")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_link_out_of_a_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "inside").symlink_to("below")
    (folder / "itself").symlink_to("itself")
    assert link_out(folder) is None
    (folder / "below" / "up").symlink_to("../inside")
    (folder / "below" / "all").symlink_to("..")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "python").symlink_to(sys.executable)
    assert link_out(folder) is None
    (folder / ".token").symlink_to(sys.executable)
    assert link_out(folder) == folder / ".token"


@pytest.mark.parametrize("name", ["one", "two/one", "three/two/one"])
@pytest.mark.parametrize("end", ["file", "folder", "nothing"])
def test_a_link_out_of_a_folder_is_found_at_any_level(
    name: str, end: str, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)
    (tmp_path / "elsewhere" / "file").touch()
    link = tmp_path / "folder" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere" / end)
    assert link_out(tmp_path / "folder") == link
