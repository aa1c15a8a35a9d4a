"""The part of the lock that an image installs is complete, pinned by hash, and no more than it needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.locked_packages import EXTRAS, LockedPackage, parse_lock, select_packages

ROOT = Path(__file__).parents[3]
LOCK = parse_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))

SMALL = """\
# a remark
app-helper==2.0 ; sys_platform == 'linux' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via app
base==1 \\
    --hash=sha256:cc
    # via
    #   app-helper
    #   other[extra]
lonely==3 \\
    --hash=sha256:dd
numbers==1 ; python_full_version < '3.12' \\
    --hash=sha256:ee
    # via lonely
numbers==2 ; python_full_version >= '3.12' \\
    --hash=sha256:ff
    # via lonely
"""


def names(packages: list[LockedPackage]) -> list[str]:
    return [package.name for package in packages]


@pytest.mark.parametrize(
    ("roots", "expected"),
    [
        (["app"], ["app-helper", "base"]),
        (["App_Helper"], ["app-helper", "base"]),
        (["other"], ["base"]),
        (["lonely"], ["lonely", "numbers", "numbers"]),
        (["base"], ["base"]),
    ],
)
def test_selection_follows_who_needs_what(roots: list[str], expected: list[str]) -> None:
    assert names(select_packages(parse_lock(SMALL), roots)) == expected


def test_requirements_keep_marker_and_hashes_and_lose_remarks() -> None:
    (helper, _) = select_packages(parse_lock(SMALL), ["app"])
    assert helper.requirement == (
        "app-helper==2.0 ; sys_platform == 'linux' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb"
    )


def test_a_root_that_is_not_locked_is_named() -> None:
    with pytest.raises(KeyError, match="nobody"):
        select_packages(parse_lock(SMALL), ["app", "nobody"])


@pytest.mark.parametrize(
    "roots",
    [["fray"], ["fray", "fray-operator"], ["hatchling"], ["jax", "matplotlib", "plotext", "scikit-learn"]],
)
def test_all_that_is_needed_at_run_time_is_selected(roots: list[str]) -> None:
    selected = set(names(select_packages(LOCK, roots)))
    assert selected >= _needed(roots) - {"fray", "fray-operator"}


def _needed(roots: list[str]) -> set[str]:
    """What the metadata of the installed packages asks for here."""
    needed: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in needed:
            continue
        needed.add(name)
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return needed


def test_development_tools_stay_out_of_images() -> None:
    selected = set(names(select_packages(LOCK, ["fray", "fray-operator"])))
    assert not selected & {"pytest", "mypy", "ruff", "hatchling", "jax", "numpy"}


def test_an_image_has_the_extras_that_it_names() -> None:
    runtime = set(names(select_packages(LOCK, ["fray", "fray[dask]"])))
    operator = set(names(select_packages(LOCK, ["fray", "fray[gke]", "fray-operator"])))
    assert {"ray", "distributed", "google-cloud-container"} & runtime == {"distributed"}
    assert {"ray", "distributed", "google-cloud-container"} & operator == {"google-cloud-container"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    declared = {Requirement(line).name: f"fray[{extra}]" for extra, lines in extras for line in lines}
    assert declared == EXTRAS


def test_every_locked_package_has_hashes() -> None:
    assert not [package.name for package in LOCK if "--hash=sha256:" not in package.requirement]


def test_program_prints_requirements_and_says_what_is_missing() -> None:
    program = [sys.executable, str(ROOT / "tools" / "locked_packages.py")]
    shown = subprocess.run([*program, "hatchling"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("hatchling==")
    failed = subprocess.run([*program, "nobody"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "requirements.lock has no nobody" in failed.stderr
