import errno
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from cfl_flower.environment.files import (
    append_durably,
    link_out,
    remove_leftovers,
    sync_folder,
    write_atomically,
)


def test_a_file_is_replaced_in_one_step(tmp_path, monkeypatch):
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


def test_a_file_is_synced_before_its_name(tmp_path, synced):
    write_atomically(tmp_path / "file", b"new")
    temporary, folder = synced
    assert temporary.name.endswith(".tmp")
    assert folder == tmp_path


def test_what_a_killed_process_left_is_removed_wherever_it_is(tmp_path):
    below = tmp_path / "clients" / "3"
    below.mkdir(parents=True)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    left = [f"..token.{gone.pid}.tmp", f".summary.json.{gone.pid}.tmp"]
    # Of another process that goes on, and files of other kinds.
    kept = [f".own.{os.getpid()}.tmp", ".report.html.1.tmp", ".own.tmp"]
    kept += ["own.7.tmp", ".x.²².tmp", f".x.{10**12}.tmp"]
    for name in (*left, *kept):
        (tmp_path / name).touch()
        (below / name).touch()
    (tmp_path / f".folder.{gone.pid}.tmp").mkdir()
    remove_leftovers(tmp_path)
    for folder in (tmp_path, below):
        assert {each.name for each in folder.iterdir() if each.is_file()} == {*kept}


def test_appended_text_is_synced_to_disk(tmp_path, synced):
    path = tmp_path / "lines"
    append_durably(path, "one\n")
    append_durably(path, "two µ\n")
    assert path.read_text(encoding="utf-8") == "one\ntwo µ\n"
    assert synced == [path, path]


@pytest.mark.parametrize(
    ("code", "raises"),
    [
        (errno.EINVAL, nullcontext()),  # of a file system that cannot sync folders
        (errno.EIO, pytest.raises(OSError, match="no")),
    ],
)
def test_an_error_of_the_disk_is_raised(code, raises, tmp_path, monkeypatch):
    def refuse(descriptor: int) -> None:
        del descriptor
        raise OSError(code, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    with raises:
        sync_folder(tmp_path)


def test_links_that_stay_in_a_folder_are_not_found(tmp_path):
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "inside").symlink_to("below")
    (folder / "itself").symlink_to("itself")
    (folder / "below" / "up").symlink_to("../inside")
    (folder / "below" / "all").symlink_to("..")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "python").symlink_to(sys.executable)
    assert link_out(folder) is None


@pytest.mark.parametrize("name", ["one", ".token", "three/two/one"])
@pytest.mark.parametrize("end", ["file", "folder", "nothing"])
def test_a_link_out_of_a_folder_is_found_at_any_level(name, end, tmp_path):
    (tmp_path / "elsewhere" / "folder").mkdir(parents=True)
    (tmp_path / "elsewhere" / "file").touch()
    link = tmp_path / "folder" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere" / end)
    assert link_out(tmp_path / "folder") == link
