"""The Dockerfiles: built from any Python image, for any platform, run as nobody in particular."""

from __future__ import annotations

import re

import pytest
import yaml

from e2e.images import TEST_IMAGES
from fray.plan.injection import PACKAGES, RUNTIME_MOUNT, UV
from fray.plan.settings import PlanSettings
from tools.images import DEFAULT_BASE, IMAGES, ROOT, Image, project_version

VERSION = project_version()


def read(image: Image) -> str:
    """The instructions of a Dockerfile, one a line."""
    lines = (ROOT / image.dockerfile).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")


def instructions(image: Image, name: str) -> list[str]:
    return re.findall(rf"^{name} +(.*)$", read(image), flags=re.MULTILINE)


all_images = pytest.mark.parametrize("image", TEST_IMAGES, ids=lambda image: image.name)


@all_images
def test_base_is_an_argument_whose_default_is_one_for_all(image: Image) -> None:
    assert f"BASE={DEFAULT_BASE}" in instructions(image, "ARG")
    bases = {line.split(" ")[0] for line in instructions(image, "FROM")}
    assert bases <= {"${BASE}", "${RUNTIME}", "packages"}
    # A tag would be cut off at the last colon; a registry's host has a dot before the first slash.
    assert "." not in DEFAULT_BASE.partition("/")[0].partition(":")[0]


@all_images
def test_nothing_is_tied_to_a_platform(image: Image) -> None:
    assert not re.search(r"amd64|x86_64|arm64|aarch64|FROM --platform", read(image))


@all_images
def test_what_is_built_with_is_left_behind(image: Image) -> None:
    stages = instructions(image, "FROM")
    assert len(stages) > 1
    assert " AS " not in stages[-1]


def test_images_run_as_a_numeric_user_that_is_not_root() -> None:
    own = [image for image in IMAGES if image.parent is None]
    assert own
    for image in own:
        assert instructions(image, "USER") == ["65532:65532"]
    assert not [line for image in IMAGES if image.parent for line in instructions(image, "USER")]


def test_the_operator_needs_to_write_nowhere_but_tmp() -> None:
    operator = read(IMAGES[0])
    assert "HOME=/tmp" in operator
    assert "PYTHONDONTWRITEBYTECODE=1" in operator


def test_what_init_containers_copy_is_in_the_operators_image() -> None:
    operator = read(IMAGES[0])
    for folder in (PACKAGES, UV):
        assert folder.startswith("/opt/fray-injected/")
        assert folder in operator
    assert "COPY --from=injected /opt/fray-injected /opt/fray-injected" in operator
    assert 'musllinux_1_1_$(uname -m)"' in operator
    # Bytecode names the files where they are read, in tracebacks for instance.
    compiled = (
        f"-m compileall -q --invalidation-mode unchecked-hash -s {PACKAGES} -p {RUNTIME_MOUNT} {PACKAGES}"
    )
    assert compiled in " ".join(operator.split())


@all_images
def test_packages_come_from_the_lock_by_hash(image: Image) -> None:
    installs = re.findall(r"pip (?:--python \S+ )?install(.*?)(?=&&|;|$)", read(image), flags=re.MULTILINE)
    assert installs
    for options in installs:
        assert "--require-hashes" in options or "--no-index" in options or "jax[$ACCELERATOR]" in options


@all_images
def test_the_context_holds_all_that_is_copied_from_it(image: Image) -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert "*" in ignore
    for copied in (line for line in instructions(image, "COPY") if "--from" not in line):
        for source in [part for part in copied.split()[:-1] if not part.startswith("--")]:
            assert any(rule.startswith(f"!{source}") for rule in ignore), source


def test_names_are_those_that_jobs_and_the_chart_use() -> None:
    runtime = f"fray-runtime:{VERSION}"
    digits = yaml.safe_load((ROOT / "examples/digits/frayjob.yaml").read_text(encoding="utf-8"))
    chart = yaml.safe_load((ROOT / "charts/fray/values.yaml").read_text(encoding="utf-8"))
    assert [image.name for image in IMAGES] == ["fray-operator", "fray-runtime", "fray-digits"]
    assert PlanSettings().image == runtime
    assert PlanSettings().injector_image == f"fray-operator:{VERSION}"
    assert digits["spec"]["environment"]["image"] == f"fray-digits:{VERSION}"
    assert chart["image"]["repository"] == "fray-operator"
    assert chart["runtimeImage"]["repository"] == "fray-runtime"
    assert f"RUNTIME={runtime}" in instructions(IMAGES[2], "ARG")
