"""A workspace becomes the same bytes in any folder, and what can't be sent is refused by name."""

from __future__ import annotations

import io
import os
import pickle
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

from fray.cluster.workspace import Archive, Archiver, WorkspaceLimits
from fray.cluster.workspace import files as files_module
from fray.cluster.workspace.archive import build_archive
from fray.errors import (
    WorkspaceLinkError,
    WorkspaceTooLargeError,
    WorkspaceUnreadableError,
)

LIMITS = WorkspaceLimits()


def write(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text or path)


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def archive(root: Path, limits: WorkspaceLimits = LIMITS) -> Archive:
    made = Archiver().archive(root, limits)
    assert made is not None
    return made


def members(made: Archive) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(made.data), mode="r:gz") as tar:
        return {member.name: member for member in tar.getmembers()}


def names(root: Path) -> list[str]:
    return list(members(archive(root)))


def test_the_same_files_are_the_same_bytes_at_any_time_and_in_any_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write(first, "b.py", "a/c.py", "run.sh")
    write(second, "run.sh", "a/c.py", "b.py")
    os.utime(second / "b.py", (1, 1))
    (second / "run.sh").chmod(0o640)
    (second / "empty").mkdir()
    assert archive(first) == archive(second)
    assert names(first) == ["a/c.py", "b.py", "run.sh"]
    (second / "run.sh").chmod(0o755)
    assert archive(first).sha256 != archive(second).sha256
    known = members(archive(second))["run.sh"]
    assert (known.mode, known.uid, known.uname) == (0o755, 0, "")
    assert known.mtime > 315_532_800, "zip files know no times before 1980"


def test_of_a_repository_go_along_tracked_files_as_they_are_and_new_ones_that_arent_ignored(
    tmp_path: Path,
) -> None:
    root = tmp_path / "repository"
    write(root, "tracked.py", "deleted.py", "forced.log", "sub/own.py", "sub/x.tmp")
    write(root, "new.py", "data.log", "__pycache__/new.pyc", "sub/__pycache__/own.pyc")
    (root / ".gitignore").write_text("*.log\n")
    (root / "sub/.gitignore").write_text("*.tmp\n")
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", "-f", "tracked.py", "deleted.py", "forced.log", "sub/own.py")
    git(root, "commit", "-qm", "x")
    (root / "deleted.py").unlink()
    write(root, "tracked.py", text="changed")
    expected = [".gitignore", "forced.log", "new.py", "sub/.gitignore", "sub/own.py", "tracked.py"]
    assert names(root) == expected
    assert members(archive(root))["tracked.py"].size == len("changed")
    assert names(root / "sub") == [".gitignore", "own.py"]


def test_submodules_and_repositories_inside_go_along(tmp_path: Path) -> None:
    library, root = tmp_path / "library", tmp_path / "root"
    for each in (library, root):
        write(each, "code.py")
        git(tmp_path, "init", "-q", str(each))
        git(each, "add", ".")
        git(each, "commit", "-qm", "x")
    git(root, "submodule", "add", "-q", str(library), "vendor/library")
    write(root, "vendor/library/new.py")
    write(root, "nested/inner.py", "nested/ignored.bin")
    git(tmp_path, "init", "-q", str(root / "nested"))
    (root / "nested/.gitignore").write_text("*.bin\n")
    assert names(root) == [
        *(".gitmodules", "code.py", "nested/.gitignore", "nested/inner.py"),
        *("vendor/library/code.py", "vendor/library/new.py"),
    ]
    git(root, "commit", "-qm", "y")
    git(root, "submodule", "deinit", "-q", "-f", "vendor/library")
    assert "vendor/library/code.py" not in names(root)


def test_an_ignored_folder_of_a_repository_is_a_workspace_of_its_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", str(tmp_path))
    (tmp_path / ".gitignore").write_text("build/\n")
    write(tmp_path, "build/job.py", "build/__pycache__/job.pyc")
    assert names(tmp_path / "build") == ["job.py"]


def test_variables_of_a_hook_name_no_other_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, root = tmp_path / "other", tmp_path / "root"
    for each, name in ((other, "other.py"), (root, "own.log")):
        write(each, name)
        git(tmp_path, "init", "-q", str(each))
        git(each, "add", ".")
    write(root, ".gitignore", text="*.log")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert names(root) == [".gitignore", "own.log"]


def test_without_git_all_goes_along_but_leftovers_and_what_gitignore_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.py", "x.log", "logs/keep.log", "logs/b.log", "out/c", "__pycache__/a.pyc", ".git/HEAD")
    write(tmp_path, "env/pyvenv.cfg", "env/bin/python", "p.egg-info/PKG-INFO", "sub/y.txt", "y.txt")
    (tmp_path / ".gitignore").write_text("*.log\n/out\n")
    (tmp_path / "logs/.gitignore").write_text("!keep.log\n")
    (tmp_path / "sub/.gitignore").write_text("/y.txt\n")
    monkeypatch.setenv("PATH", "")
    expected = [".gitignore", "a.py", "logs/.gitignore", "logs/keep.log", "sub/.gitignore", "y.txt"]
    assert names(tmp_path) == expected


def test_a_folder_that_somebody_removes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.py", "b/c.py")
    scan = os.scandir

    def scan_late(folder: Path) -> object:
        if folder == tmp_path / "b":
            (folder / "c.py").unlink()
            folder.rmdir()
        return scan(folder)

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(files_module.os, "scandir", scan_late)
    assert [file.path for file in files_module.find_files(tmp_path)] == ["a.py"]


@pytest.mark.parametrize("with_git", [True, False])
def test_names_of_all_kinds_come_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_git: bool
) -> None:
    root = tmp_path / "code"
    hostile = ["-rf", "a\nb", "a b", "$(x)", "`y`", "ä", "\\", '"', "x" * 200, "..a", "~", "%s", "*"]
    write(root, *hostile, "deep/" * 60 + "end")
    raw = os.fsdecode(b"\xff\xfe")
    (root / raw).write_text("raw")
    if with_git:
        git(tmp_path, "init", "-q", str(root))
    else:
        monkeypatch.setenv("PATH", "")
    made = archive(root)
    out = tmp_path / "out"
    with tarfile.open(fileobj=io.BytesIO(made.data), mode="r:gz") as tar:
        tar.extractall(out, filter="data")
    assert sorted(path.name for path in out.iterdir()) == sorted([*hostile, raw, "deep"])
    assert all((out / name).read_text() == name for name in hostile)
    assert (out / raw).read_text() == "raw"


def test_links_within_stay_links_and_absolute_ones_become_relative(tmp_path: Path) -> None:
    root = tmp_path / "code"
    write(root, "sub/a.py", "pkg/m.py")
    (root / "to-file").symlink_to("sub/a.py")
    (root / "sub/to-folder").symlink_to("../pkg")
    (root / "sub/absolute").symlink_to(root / "pkg/m.py")
    (root / "dangling").symlink_to("nowhere")
    links = {name: each.linkname for name, each in members(archive(root)).items() if each.issym()}
    assert links == {
        "to-file": "sub/a.py",
        "sub/to-folder": "../pkg",
        "sub/absolute": "../pkg/m.py",
        "dangling": "nowhere",
    }


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "..", "../code2/x", "sub/../../x", "sub/up/../x", "sub/up/sub/../../../x"]
)
def test_a_link_that_leaves_the_workspace_is_refused(tmp_path: Path, target: str) -> None:
    root = tmp_path / "code"
    write(root, "sub/a.py")
    (root / "sub/up").symlink_to("..")
    (root / "link").symlink_to(target)
    with pytest.raises(WorkspaceLinkError, match="outside of it") as caught:
        archive(root)
    told = pickle.loads(pickle.dumps(caught.value))
    assert (told.link, told.target) == ("link", target)


def test_links_in_a_circle_are_their_authors_matter(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert names(tmp_path) == ["a", "b"]


def test_a_file_that_cant_be_read_is_told(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    found = files_module.find_files(tmp_path)
    (tmp_path / "a.py").unlink()
    with pytest.raises(WorkspaceUnreadableError, match=r"a\.py: No such file"):
        build_archive(tmp_path, found)


def test_sockets_and_pipes_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert names(tmp_path) == ["a.py"]


def test_a_large_workspace_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    write(tmp_path, "small.py", "sub/code.py")
    for name, size in (("data.bin", 3_000_000), ("sub/model.bin", 5_000_000)):
        (tmp_path / name).write_bytes(os.urandom(size))
    with pytest.raises(WorkspaceTooLargeError) as caught:
        archive(tmp_path, WorkspaceLimits(secrets=4 << 20))
    error = caught.value
    assert error.parts[:2] == (("sub/model.bin", 5_000_000), ("data.bin", 3_000_000))
    assert "takes 8.0 MB, more than 4.2 MB for Secrets" in str(error)
    assert ".gitignore" in str(error)
    assert archive(tmp_path, WorkspaceLimits(secrets=4 << 20, staging=1 << 30)).size > 8_000_000
    (tmp_path / ".gitignore").write_text("*.bin\n")
    assert archive(tmp_path).size < 1000


def test_files_that_are_far_too_large_are_never_read(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(WorkspaceTooLargeError, match="sparse"):
        archive(tmp_path)


def test_too_many_files_are_refused_before_all_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *(f"{number}.txt" for number in range(30)))
    monkeypatch.setattr(files_module, "MOST_FILES", 20)
    assert len(files_module.find_files(tmp_path)) == 21
    monkeypatch.setattr("fray.cluster.workspace.archive.MOST_FILES", 20)
    with pytest.raises(WorkspaceTooLargeError, match="over 20 files"):
        archive(tmp_path)


def test_an_empty_directory_is_nothing(tmp_path: Path) -> None:
    assert Archiver().archive(tmp_path, LIMITS) is None
    assert Archiver().archive(Path("/"), LIMITS) is None


def test_code_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.py")
    archiver = Archiver()
    first = archiver.archive(tmp_path, LIMITS)
    with monkeypatch.context() as patched:
        patched.setattr("fray.cluster.workspace.archive.build_archive", None)
        assert archiver.archive(tmp_path, LIMITS) is first
    write(tmp_path, "a.py", text="A.PY")
    second = archiver.archive(tmp_path, LIMITS)
    assert second is not None
    assert second != first
