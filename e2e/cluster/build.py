"""Compile the pinned programs once per machine and hand out their paths.

A program is built when it is missing, into a cache shared by all checkouts of a user; nothing is ever
rebuilt for an unchanged version. Starting programs is not done here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from e2e.cluster.lock import hold_lock
from e2e.cluster.toolchain import Platform, host_platform, run_go
from e2e.cluster.versions import Part, Program, part_named, program_named

__all__ = ["CONTROL_PLANE", "Binaries", "build", "cache_root", "module_source", "program_path"]

CONTROL_PLANE = ("kube-apiserver", "etcd")
"""The two programs that a bare control plane needs."""

Binaries = Mapping[str, Path]
"""Program name -> executable file."""


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of everything that is built once: `$XDG_CACHE_HOME/fray/cluster`, default under `~/.cache`."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative value must be ignored.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "fray" / "cluster"


def program_path(part: Part, program: Program, target: Platform, *, root: Path | None = None) -> Path:
    """Where `program` is once it is built, keyed by version, pinned dependency tree, recipe and platform."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((part.folder / name).read_bytes())
    recipe = f"-r{part.recipe}" if part.recipe > 1 else ""
    key = f"{part.name}-{part.version}-{digest.hexdigest()[:8]}{recipe}"
    return (root or cache_root()) / "programs" / key / str(target) / program.name


def build(
    names: Iterable[str],
    *,
    progress: Callable[[str], None] = print,
    root: Path | None = None,
    target: Platform | None = None,
) -> Binaries:
    """Executable files of the programs called `names`, built where they are missing.

    Parameters: `progress` gets one line per step that takes time; `root` replaces the cache folder; `target`
    is the platform they will run on, by default this machine's.
    Raises UnknownProgramError, GoToolchainError, ModuleProxyError, CompileError; OSError when the cache
    can't be written.
    """
    target = target or host_platform()
    built: dict[str, Path] = {}
    for part, program in [program_named(name) for name in names]:
        path = program_path(part, program, target, root=root)
        if not path.exists():
            waiting = f"waiting for another process that builds into {path.parent}"
            with hold_lock(path.parent / ".lock", on_wait=functools.partial(progress, waiting)):
                # Looked at again: another builder may have finished it while this one waited.
                if not path.exists():
                    _compile(part, program, target, path, progress)
        built[program.name] = path
    return built


def module_source(part_name: str, *, root: Path | None = None) -> Path:
    """Folder with the upstream sources of a part; charts and CRDs are taken from there.

    Fetched once; `root` replaces the cache folder.
    Raises UnknownProgramError, GoToolchainError, ModuleProxyError, CompileError; OSError when the cache
    can't be written.
    """
    part = part_named(part_name)
    path = (root or cache_root()) / "sources" / f"{part.name}-{part.version}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent) as name:
        copy = Path(name) / "copy"
        _copy_sources(part, copy)
        with suppress(OSError):  # another process was first
            copy.rename(path)
    return path


def _compile(
    part: Part, program: Program, target: Platform, path: Path, progress: Callable[[str], None]
) -> None:
    for leftover in path.parent.glob(".*.partial"):  # of a killed builder; its Go may still write, harmlessly
        leftover.unlink(missing_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    flags = " ".join(["-s", "-w", *(f"-X {key}={value}" for key, value in part.link_variables.items())])
    doing = f"building {program.name} {part.version} for {target}"
    progress(f"{doing} (all of {part.name} takes about {part.cold_build} the first time)")
    started = time.monotonic()
    try:
        with _cut_sources(part) as module_flags:
            run_go(
                [
                    "build",
                    *module_flags,
                    "-p=2",
                    "-trimpath",
                    "-buildvcs=false",
                    "-gcflags=all=-dwarf=false",  # what `-w` leaves out of the program isn't made at all
                    f"-ldflags={flags}",
                    f"-o={partial}",
                    program.package,
                ],
                cwd=part.folder,
                doing=doing,
                target=target,
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    progress(f"built {program.name} {part.version} in {time.monotonic() - started:.0f} s")


@contextmanager
def _cut_sources(part: Part) -> Iterator[list[str]]:
    """Return flags by which Go builds a part from a copy of its sources, without what is left out."""
    if not part.leave_out:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="fray-go-") as name:
        folder = Path(name)
        _copy_sources(part, folder / "sources")
        for left_out in part.leave_out:
            (folder / "sources" / left_out).unlink()
        module = (part.folder / "go.mod").read_text(encoding="utf-8")
        replaced = f"\nreplace {part.module} => {folder / 'sources'}\n"
        (folder / "build.mod").write_text(module + replaced, encoding="utf-8")
        shutil.copyfile(part.folder / "go.sum", folder / "build.sum")
        yield [f"-modfile={folder / 'build.mod'}"]


def _copy_sources(part: Part, copy: Path) -> None:
    """Copy the sources of a part, which are fetched if Go doesn't have them."""
    said = run_go(
        ["mod", "download", "-json", f"{part.module}@{part.version}"],
        cwd=part.folder,
        doing=f"fetching the sources of {part.name} {part.version}",
    )
    shutil.copytree(json.loads(said)["Dir"], copy, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(copy):
        Path(folder).chmod(0o755)  # the module cache is read-only, and its modes were copied
