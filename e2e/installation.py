"""From nothing to a cluster with this checkout's Fray in it, each step harmless when it is done already.

Tests and measurements start from here. Nothing is removed: the cluster stays for the next run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from e2e.cluster import provider
from e2e.cluster.build import build
from e2e.cluster.errors import ClusterError
from e2e.cluster.layout import Layout
from e2e.cluster.paths import KUBECONFIG
from e2e.images import build_images
from e2e.kubectl import Kubectl, require_test_cluster
from e2e.node_images import NodeImages, image_id
from e2e.release import Helm, Release
from tools.images import IMAGES, Image

__all__ = [
    "build_kubectl",
    "build_release",
    "install_release",
    "load_images",
    "open_cluster",
    "print_measured",
    "say",
]

Progress = Callable[[str], None]


def say(line: str) -> None:
    """Print how far a measurement is, beside its result."""
    print(line, file=sys.stderr, flush=True)


def print_measured(measure: Callable[[Path], str]) -> int:
    """Print what is measured; returns the exit code. Faults of the cluster are printed, without a traceback.

    `measure` gets a folder of its own, which is removed.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="fray-measured-") as folder:
            report = measure(Path(folder))
    except ClusterError as error:
        say(f"{type(error).__name__}: {error}")
        return 1
    print(report)
    return 0


def open_cluster(progress: Progress) -> Layout:
    """Make the cluster or find it; returns its hosts. Raises ClusterError."""
    require_test_cluster(provider.up(provider.Options(), progress=progress))
    return provider.current_layout()


def build_kubectl(folder: Path) -> Kubectl:
    """An administrator's kubectl of the cluster's own version, which writes to `folder` only."""
    return Kubectl(build(["kubectl"])["kubectl"], KUBECONFIG, folder)


def load_images(layout: Layout, progress: Progress, images: Sequence[Image] = IMAGES) -> Mapping[str, Path]:
    """Build images and give them to the hosts; returns their archives. Raises ClusterError."""
    archives = build_images(images, progress=progress)
    NodeImages(provider.connect(), layout).update(archives, progress=progress)
    return archives


def build_release(kubectl: Kubectl, archives: Mapping[str, Path], folder: Path) -> Release:
    """The chart as it is installed for a whole cluster, not installed yet; helm writes to `folder` only."""
    helm = Helm(build(["helm"])["helm"], KUBECONFIG, folder)
    # The tag of an image stays the same while the checkout changes: pods must be replaced anyway.
    digest = image_id(archives["fray-operator"]).removesuffix(".json")[-16:]
    return Release(
        helm, kubectl, values=("--create-namespace", f"--set-string=podAnnotations.image={digest}")
    )


def install_release(folder: Path, progress: Progress, images: Sequence[Image] = IMAGES) -> Release:
    """The chart, installed for a whole cluster, which is made if need be; `folder` is for its programs.

    `images` are those that the hosts get. Raises ClusterError.
    """
    layout = open_cluster(progress)
    release = build_release(build_kubectl(folder), load_images(layout, progress, images), folder)
    progress("installing the chart")
    release.install()
    return release
