"""A store's directories: nobody else's are used, and those of dead owners are swept."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest

from fray.errors import StoreDirectoryError
from fray.runtime.pool.objects.directories import create_store
from fray.runtime.pool.objects.store import HostStore
from tests.pool.store.stored import value

# The code that is forked takes no lock that another thread of pytest could hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
fork = multiprocessing.get_context("fork")


def test_foreign_files_are_refused(store: HostStore, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * 100)
    (store.directory / "1").symlink_to(tmp_path / "secret")
    os.mkfifo(store.directory / "2")
    (store.directory / "3").mkdir()
    (store.directory / "4").write_bytes(b"")
    for identity in range(1, 5):
        with pytest.raises(StoreDirectoryError):
            store.open(identity)


def test_files_of_other_users_are_refused(store: HostStore) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a file away needs root")
    store.write(1, value(1000))
    os.chown(store.directory / "1", 12345, 12345)
    with pytest.raises(StoreDirectoryError, match="isn't a file of this user"):
        store.open(1)


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o777])
def test_directories_that_others_may_enter_are_refused(tmp_path: Path, mode: int) -> None:
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o700)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(mode)
    link = tmp_path / "link"
    link.symlink_to(ours)
    for bad in (open_to_all, link):
        with pytest.raises(StoreDirectoryError):
            HostStore(ours, bad, 1000)
        with pytest.raises(StoreDirectoryError):
            HostStore(bad, ours, 1000)


def test_a_place_that_somebody_else_prepared_is_not_used(tmp_path: Path) -> None:
    shared, disk = tmp_path / "shared", tmp_path / "disk"
    (shared / f"fray-{os.geteuid()}").mkdir(parents=True)
    (shared / f"fray-{os.geteuid()}").chmod(0o777)
    disk.mkdir()
    made = create_store(limit=1000, spill=disk, shared_memory=shared)
    assert not made.store.directory.is_relative_to(shared)
    made.close()
    with pytest.raises(StoreDirectoryError):
        create_store(limit=1000, spill=shared, shared_memory=disk)
    assert list((disk / f"fray-{os.geteuid()}").iterdir()) == []


def test_without_shared_memory_temporary_files_take_its_place(tmp_path: Path) -> None:
    made = create_store(limit=1000, spill=tmp_path, shared_memory=tmp_path / "missing")
    made.store.write(1, value(500))
    assert len(made.store.open(1)) == 500
    made.close()


def test_closing_removes_everything(tmp_path: Path) -> None:
    made = create_store(limit=1000, spill=tmp_path, shared_memory=tmp_path)
    made.store.write(1, value(600))
    made.store.write(2, value(600))
    made.close()
    home = tmp_path / f"fray-{os.geteuid()}"
    assert list(home.iterdir()) == []


def make_and_die(place: Path) -> None:
    made = create_store(limit=10_000, spill=place, shared_memory=place)
    made.store.write(1, value(600))
    os.kill(os.getpid(), signal.SIGKILL)


def test_directories_of_dead_owners_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    living = create_store(limit=10_000, spill=tmp_path, shared_memory=tmp_path)
    child = fork.Process(target=make_and_die, args=(tmp_path,))
    child.start()
    child.join()
    home = tmp_path / f"fray-{os.geteuid()}"
    assert len(list(home.iterdir())) == 4
    following = create_store(limit=10_000, spill=tmp_path, shared_memory=tmp_path)
    assert set(home.iterdir()) == {
        place for made in (living, following) for place in (made.store.directory, made.store.spill_directory)
    }
    living.close()
    following.close()


def write_to_disk(directory: Path, spill: Path) -> None:
    HostStore(directory, spill, 0).write(2, value(600))


@pytest.mark.parametrize("levels", [0, 1, 2], ids=["the directory", "the user's", "the place"])
def test_a_directory_on_disk_that_vanishes_is_made_again_and_not_swept(tmp_path: Path, levels: int) -> None:
    (place := tmp_path / "disk").mkdir()
    made = create_store(limit=1000, spill=place, shared_memory=tmp_path)
    spill = made.store.spill_directory
    made.store.write(1, value(600))
    shutil.rmtree((spill, *spill.parents)[levels])
    # Who makes it again may be dead before another pool begins; those that live have learned of it then.
    child = fork.Process(target=write_to_disk, args=(made.store.directory, spill))
    child.start()
    child.join()
    made.store.discard_dead_parts()
    create_store(limit=1000, spill=place, shared_memory=tmp_path).close()
    assert len(made.store.open(1)) == len(made.store.open(2)) == 600
    shutil.rmtree(spill)
    assert made.store.spill(1)
    made.store.write(3, value(900))
    made.store.write(4, value(600))
    assert [len(made.store.open(each)) for each in (1, 3, 4)] == [600, 900, 600]
    made.close()
    assert not spill.exists()


def test_workers_of_a_dead_owner_keep_the_store(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    waiting, ending = os.pipe()

    def own() -> None:
        create_store(limit=10_000, spill=tmp_path, shared_memory=tmp_path)
        if os.fork() == 0:
            os.close(ending)
            os.write(writing, b"x")
            os.read(waiting, 1)
            os._exit(0)
        os.read(reading, 1)
        os._exit(0)

    owner = fork.Process(target=own)
    owner.start()
    owner.join()
    home = tmp_path / f"fray-{os.geteuid()}"
    create_store(limit=10_000, spill=tmp_path, shared_memory=tmp_path).close()
    assert len(list(home.iterdir())) == 2
    os.close(writing)
    os.close(ending)
    # The end of the pipe tells that the worker, which holds the other one, has gone.
    assert os.read(reading, 1) == b""
    create_store(limit=10_000, spill=tmp_path, shared_memory=tmp_path).close()
    assert list(home.iterdir()) == []
    os.close(reading)
    os.close(waiting)
