"""Build the project's container images from this checkout, and push them where a registry is given.

    python tools/images.py [--registry HOST/PATH] [--base IMAGE] [--platform linux/arm64]

Also the functions that the test clusters build their images with. What is in an image stands in its
Dockerfile; nothing here knows what the images are for. Standard library only.
"""

from __future__ import annotations

import argparse
import configparser
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["IMAGES", "BuildOptions", "EngineError", "Image", "ImageBuilder", "find_engine", "project_version"]

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_BASE = "python:3.11-slim"
CERTIFICATES_MOUNT = "/run/secrets/certificates"
"""Where a build finds the secret of this name; the Dockerfiles mount it."""

STDERR = 2
"""Descriptor of this process's standard error."""

EngineName = Literal["docker", "buildah"]
ENGINES: tuple[EngineName, ...] = ("docker", "buildah")


class EngineError(Exception):
    """No container engine can be used, or it failed; the message says what to do."""


@dataclass(frozen=True)
class Image:
    """One image: its `name`, its Dockerfile, and the other image that it is built from, if any."""

    name: str
    dockerfile: str
    parent: str | None = None


IMAGES = (
    Image("fray-operator", "operator/Dockerfile"),
    Image("fray-runtime", "images/runtime/Dockerfile"),
    Image("fray-digits", "examples/digits/Dockerfile", parent="fray-runtime"),
)
"""All images; each stands behind the one that it is built from."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a build may differ in.

    `registry` goes in front of the names; `base` is the image with Python that all are built from; `platform`
    is an operating system and architecture such as `linux/arm64`, by default those of this machine.
    """

    tag: str
    registry: str = ""
    base: str = DEFAULT_BASE
    platform: str | None = None

    def reference(self, name: str) -> str:
        """The full name of an image, under which a cluster can pull it."""
        prefix = f"{self.registry.rstrip('/')}/" if self.registry else ""
        return f"{prefix}{name}:{self.tag}"


@dataclass(frozen=True)
class ImageBuilder:
    """Runs one container engine on this machine, with `environ` as the engine's environment."""

    engine: EngineName
    environ: Mapping[str, str]

    def build(self, options: BuildOptions, images: Sequence[Image] = IMAGES) -> dict[str, str]:
        """Build images, by default all; return the reference of each by its name. Raises EngineError."""
        with package_secrets(self.environ) as secrets:
            for image in images:
                self._run(build_command(self.engine, image, options, secrets))
        return {image.name: options.reference(image.name) for image in images}

    def push(self, reference: str) -> None:
        """Push an image to its registry. Raises EngineError."""
        self._run([self.engine, "push", reference])

    def export(self, reference: str, path: Path) -> Path:
        """Write an image as a docker-archive tar, which engines and containerd load. Raises EngineError."""
        partial = path.with_name(f".{path.name}.partial")
        partial.unlink(missing_ok=True)  # buildah does not write over an archive
        try:
            self._run(export_command(self.engine, reference, partial))
            return partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def _run(self, command: Sequence[str]) -> None:
        try:
            # What an engine prints is progress: it goes where the user looks for that.
            subprocess.run(command, check=True, cwd=ROOT, env=dict(self.environ), stdout=STDERR)
        except FileNotFoundError as missing:
            raise EngineError(f"{command[0]} is not installed") from missing
        except subprocess.CalledProcessError as failed:
            shown = " ".join(command)
            raise EngineError(
                f"`{shown}` failed with exit code {failed.returncode}; its own words are above"
            ) from failed


def build_command(
    engine: EngineName, image: Image, options: BuildOptions, secrets: Mapping[str, Path]
) -> list[str]:
    """The command that builds an image, run from the root of the checkout."""
    command = {
        "docker": ["docker", "build"],
        # Layers are kept as docker does; the network of the machine needs no privilege to set up.
        "buildah": ["buildah", "build", "--layers", "--network=host"],
    }[engine]
    arguments = {"BASE": options.base}
    if image.parent is not None:
        arguments["RUNTIME"] = options.reference(image.parent)
    return [
        *command,
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        *(f"--secret=id={name},src={path}" for name, path in secrets.items()),
        *([f"--platform={options.platform}"] if options.platform else []),
        f"--file={image.dockerfile}",
        f"--tag={options.reference(image.name)}",
        ".",
    ]


def export_command(engine: EngineName, reference: str, path: Path) -> list[str]:
    """The command that writes an image to a docker-archive tar."""
    if engine == "docker":
        return ["docker", "save", f"--output={path}", reference]
    return ["buildah", "push", reference, f"docker-archive:{path}:{reference}"]


@contextmanager
def package_secrets(environ: Mapping[str, str]) -> Iterator[dict[str, Path]]:
    """Files that tell a build where packages come from, for the length of a `with` block.

    They hold this machine's own pip settings, so that a build works behind the same mirror as the machine.
    """
    settings = read_pip_settings(environ)
    authorities = settings.get("cert") or environ.get("SSL_CERT_FILE")
    secrets: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="fray-images-") as folder:
        if authorities and Path(authorities).is_file():
            secrets["certificates"] = Path(authorities).resolve()
            settings["cert"] = CERTIFICATES_MOUNT
        else:
            settings.pop("cert", None)
        if settings:
            secrets["pip"] = Path(folder) / "pip.conf"
            lines = ["[global]", *(f"{name} = {value}" for name, value in settings.items())]
            secrets["pip"].write_text("\n".join(lines) + "\n", encoding="utf-8")
        yield secrets


def read_pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of this machine's pip that say where packages come from, by pip's names for them."""
    home = Path(environ.get("HOME", "/"))
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf"]
    if environ.get("PIP_CONFIG_FILE"):
        files.append(Path(environ["PIP_CONFIG_FILE"]))
    parser = configparser.RawConfigParser()
    parser.read(files, encoding="utf-8")
    found = dict(parser["global"]) if parser.has_section("global") else {}
    settings: dict[str, str] = {}
    for name in ("index-url", "extra-index-url", "trusted-host", "cert"):
        variable = environ.get(f"PIP_{name.replace('-', '_').upper()}")
        value = variable or found.get(name) or found.get(name.replace("-", "_"))
        if value:
            settings[name] = " ".join(value.split())
    return settings


def find_engine(environ: Mapping[str, str]) -> EngineName:
    """Docker where its daemon answers, else buildah. Raises EngineError when there is neither."""
    path = environ.get("PATH")
    if shutil.which("docker", path=path) is not None:
        probe = ["docker", "version", "--format={{.Server.Version}}"]
        if subprocess.run(probe, env=dict(environ), capture_output=True, check=False).returncode == 0:
            return "docker"
    if shutil.which("buildah", path=path) is not None:
        return "buildah"
    raise EngineError("no container engine: start Docker, or install buildah, then run it again")


def project_version() -> str:
    """The version of this checkout: the tag of its images."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="images", description="Build the images of Fray; push with --registry."
    )
    parser.add_argument(
        "--registry", default="", help="where to push, such as REGION-docker.pkg.dev/PROJECT/fray"
    )
    parser.add_argument("--tag", default=project_version(), help="tag of the images (default: %(default)s)")
    parser.add_argument("--base", default=DEFAULT_BASE, help="image with Python (default: %(default)s)")
    parser.add_argument("--platform", help="such as linux/arm64 (default: this machine's)")
    parser.add_argument("--engine", choices=ENGINES, help="default: Docker if it runs, else buildah")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, push where a registry is given, and print one reference a line."""
    options = _parse(arguments)
    try:
        builder = ImageBuilder(options.engine or find_engine(os.environ), os.environ)
        chosen = BuildOptions(
            tag=options.tag, registry=options.registry, base=options.base, platform=options.platform
        )
        references = builder.build(chosen)
        if options.registry:
            for reference in references.values():
                builder.push(reference)
    except EngineError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    print("\n".join(references.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
