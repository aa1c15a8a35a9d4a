"""What is pinned for the test clusters fits together, and is built again when it has to be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from e2e.cluster.build import program_path
from e2e.cluster.toolchain import Platform
from e2e.cluster.versions import part_named

TARGET = Platform("linux", "amd64")


def test_another_recipe_is_another_program(tmp_path: Path) -> None:
    part = replace(part_named("etcd"), recipe=1)
    (program,) = part.programs
    paths = [program_path(replace(part, recipe=n), program, TARGET, root=tmp_path) for n in (1, 2, 3)]
    assert len(set(paths)) == 3
    assert all(path.name == "etcd" for path in paths)


def test_kubernetes_says_the_version_that_it_has() -> None:
    part = part_named("kubernetes")
    prefix = "k8s.io/component-base/version.git"
    major, minor, _ = part.version.removeprefix("v").split(".")
    assert part.link_variables[f"{prefix}Version"] == part.version
    assert (part.link_variables[f"{prefix}Major"], part.link_variables[f"{prefix}Minor"]) == (major, minor)


def test_helm_takes_a_cluster_for_the_version_that_its_own_releases_do() -> None:
    """Upstream derives both from the client library (the Makefile of helm.sh/helm/v3)."""
    part = part_named("helm")
    client = re.search(r"k8s\.io/client-go v0\.(\d+)\.", (part.folder / "go.mod").read_text(encoding="utf-8"))
    assert client is not None
    for package in ("chartutil", "lint/rules"):
        prefix = f"helm.sh/helm/v3/pkg/{package}.k8sVersion"
        assert part.link_variables[f"{prefix}Major"] == "1"
        assert part.link_variables[f"{prefix}Minor"] == client[1]
