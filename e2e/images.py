"""The project's own images for test clusters, built from this checkout as files that a cluster can import.

Where an engine can pull, they are built from the same base as everybody's. A machine that reaches package
registries only builds them from a Debian of its own. What is in the images stands in their Dockerfiles, how
they are built in `tools.images`; importing them into nodes is `e2e.cluster.images`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from e2e.cluster.build import cache_root
from e2e.cluster.command import run
from e2e.cluster.docker_engine import can_pull
from e2e.cluster.errors import ClusterError, CommandError, MachineError
from e2e.cluster.machine import install_packages
from tools.images import (
    DEFAULT_BASE,
    IMAGES,
    BuildOptions,
    EngineError,
    EngineName,
    Image,
    ImageBuilder,
    find_engine,
    project_version,
)

__all__ = ["ENGINES_IMAGE", "TEST_IMAGES", "build_images", "debian_base", "main"]

ROOT = Path(__file__).resolve().parents[1]
SUITES = {11: "bookworm", 13: "trixie"}
"""Debian release by the minor version of its Python 3. A callable needs the same Python where it runs."""
DEFAULT_SUITE = "bookworm"
TEST_IMAGES = (*IMAGES, Image("fray-ray", "e2e/ray.Dockerfile", parent="fray-runtime"))
"""Everybody's, and the one that has the packages of every engine of workers."""
ENGINES_IMAGE = f"fray-ray:{project_version()}"
"""What pods call that one."""
SOURCES = (
    *("operator", "src", "examples/digits", "images"),
    *("e2e/ray.Dockerfile", "tools/locked_packages.py", "tools/images.py"),
)
NO_SOURCES = {"__pycache__", "output"}
"""Folders beneath them that Python and the example write."""
ROOT_FILES = (".dockerignore", "LICENSE", "README.md", "pyproject.toml", "requirements.lock")


def build_images(
    images: Sequence[Image] = IMAGES,
    *,
    progress: Callable[[str], None] = print,
    folder: Path | None = None,
    base: str | None = None,
) -> dict[str, Path]:
    """The docker-archive tar of each image, by name; built when the checkout has changed.

    Parameters: `images`, with the parents of each before it; `progress` gets one line per step that takes
    time; `folder` for the tars, by default the cache; `base` an image with Python, by default one that this
    machine can get.
    Raises MachineError for what the machine lacks, EngineError when a build fails.
    """
    environ = {**os.environ, **_engine_settings()}
    builder = ImageBuilder(_engine(environ, progress), environ)
    if base is None:
        base = DEFAULT_BASE if builder.engine == "docker" else debian_base(builder, progress)
    folder = folder or cache_root() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    # Short names: what the chart and the example name by default is what a cluster then finds.
    options = BuildOptions(tag=project_version(), base=base)
    tars = {image.name: folder / f"{image.name}.tar" for image in images}
    with _only_one(folder):
        wanted = f"{fingerprint()} {builder.engine} {base} {options.tag}"
        outdated = [image for image in images if not _is_current(tars[image.name], wanted)]
        if not outdated:
            return tars
        parents = {image.parent for image in outdated if image.parent}
        if any(_image_id(options.reference(parent), builder) is None for parent in parents):
            outdated = list(images)
        names = [image.name for image in outdated]
        progress(f"building {', '.join(names)} with {builder.engine} from {base}")
        replaced = {name: _image_id(options.reference(name), builder) for name in names}
        for name, reference in builder.build(options, outdated).items():
            progress(f"writing {tars[name]}")
            _stamp(tars[name]).unlink(missing_ok=True)
            builder.export(reference, tars[name])
            if replaced[name] not in (None, _image_id(reference, builder)):
                # Or each change of the checkout would leave a gigabyte behind.
                with contextlib.suppress(CommandError):  # somebody may use it
                    run([builder.engine, "rmi", str(replaced[name])], environment=environ)
            # Written last: an interrupted run is begun again.
            _stamp(tars[name]).write_text(wanted)
    return tars


def _stamp(tar: Path) -> Path:
    """The file that says what checkout a tar was built from."""
    return tar.with_name(f".{tar.stem}.checkout")


def _is_current(tar: Path, wanted: str) -> bool:
    return tar.exists() and _stamp(tar).exists() and _stamp(tar).read_text() == wanted


def fingerprint() -> str:
    """Digest of every file that can end up in an image, and of how they are built."""
    digest = hashlib.sha256()
    files = [ROOT / name for name in ROOT_FILES]
    for name in SOURCES:
        files += [path for path in (ROOT / name, *(ROOT / name).rglob("*")) if path.is_file()]
    for path in sorted(files):
        if not NO_SOURCES & set(path.parts):
            digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def debian_base(builder: ImageBuilder, progress: Callable[[str], None]) -> str:
    """Name of an image with Debian's own Python, made by debootstrap if needed. Raises MachineError."""
    suite = SUITES.get(sys.version_info.minor, DEFAULT_SUITE)
    name = f"localhost/fray-test-base:{suite}"
    environment = builder.environ
    if _image_id(name, builder) is not None:
        return name
    install_packages({"debootstrap": "debootstrap"}, progress)
    progress(f"making {name} with debootstrap (about 300 MB, a minute)")
    include = "--include=python3,python3-venv,ca-certificates"
    mirror = _debian_mirror(environment)
    with tempfile.TemporaryDirectory(prefix="fray-debian-") as folder:
        try:
            run(
                ["debootstrap", "--variant=minbase", include, suite, folder, *mirror],
                environment=environment,
                timeout=900,
            )
            _strip(Path(folder))
            container = run(["buildah", "from", "scratch"], environment=environment).strip()
            try:
                for step in (
                    ["copy", "--quiet", container, folder, "/"],
                    ["commit", "--quiet", container, name],
                ):
                    run(["buildah", *step], environment=environment, timeout=600)
            finally:
                run(["buildah", "rm", container], environment=environment)
        except CommandError as error:
            raise MachineError(f"no base image could be made of Debian {suite}", str(error)) from error
    return name


def _strip(root: Path) -> None:
    """Remove what only apt needs."""
    for name in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name / "partial").mkdir(parents=True)


def _debian_mirror(environment: Mapping[str, str]) -> list[str]:
    """Where this machine gets Debian from, if it is a Debian; debootstrap knows a place else."""
    try:
        listed = run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"],
            environment=environment,
        )
    except CommandError:
        return []
    return [address for address in listed.split() if "security" not in address][:1]


def _image_id(name: str, builder: ImageBuilder) -> str | None:
    """Digest of an image that the engine has, or None."""
    command = {
        "docker": ["docker", "image", "inspect", "--format={{.Id}}", name],
        "buildah": ["buildah", "inspect", "--type=image", "--format={{.FromImageID}}", name],
    }[builder.engine]
    try:
        return run(command, environment=builder.environ).strip()
    except CommandError:
        return None


def _engine_settings() -> dict[str, str]:
    """Settings under which buildah runs as root without further privileges; the user's own win."""
    defaults = {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "overlay"}
    return {name: value for name, value in defaults.items() if name not in os.environ}


def _engine(environ: Mapping[str, str], progress: Callable[[str], None]) -> EngineName:
    """An engine that works here: Docker where it can pull, else buildah, which is installed if need be."""
    with contextlib.suppress(EngineError):
        engine = find_engine(environ)
        if engine == "buildah" or can_pull():
            return engine
    install_packages({"buildah": "buildah"}, progress)
    return "buildah"


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the kernel drops it when the holder dies, however it dies."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Build all; returns the exit code. What this machine lacks is printed, without a traceback."""
    try:
        build_images(TEST_IMAGES)
    except (ClusterError, EngineError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
