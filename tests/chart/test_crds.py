"""The CRDs in the chart: the generated ones, upgraded with it, and kept when it goes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, HelmRefusedError, find, kinds, render, run_helm

GENERATED = CHART.parents[1] / "crds"
COPIES = CHART / "files" / "crds"
NAMES = sorted(path.name for path in GENERATED.glob("*.yaml"))


def test_the_chart_carries_every_generated_crd_as_it_is() -> None:
    assert NAMES
    assert sorted(path.name for path in COPIES.glob("*.yaml")) == NAMES
    differing = [name for name in NAMES if (COPIES / name).read_bytes() != (GENERATED / name).read_bytes()]
    assert not differing, f"{differing}: run `make crds`"


@pytest.mark.parametrize("name", NAMES)
def test_a_crd_reaches_the_cluster_unchanged_but_for_the_mark_that_keeps_it(name: str) -> None:
    expected = yaml.safe_load((GENERATED / name).read_text(encoding="utf-8"))
    rendered = find(render(), "CustomResourceDefinition", expected["metadata"]["name"])
    assert rendered["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert rendered == expected


def test_text_that_looks_like_a_template_is_left_alone(tmp_path: Path) -> None:
    copy = _copy_with_crd(
        tmp_path, "metadata:\n  name: x\ndescription: '{{ fail \"interpreted\" }} 1000000'\n"
    )
    shown = run_helm("template", "fray", str(copy), "--show-only=templates/crds.yaml")
    assert yaml.safe_load(shown)["description"] == '{{ fail "interpreted" }} 1000000'


def test_a_crd_that_can_not_be_marked_is_refused(tmp_path: Path) -> None:
    copy = _copy_with_crd(tmp_path, "metadata: {name: x}\n")
    with pytest.raises(HelmRefusedError, match="could not be marked to be kept by helm uninstall"):
        run_helm("template", "fray", str(copy))


def _copy_with_crd(folder: Path, body: str) -> Path:
    copy = folder / "fray"
    for source in (path for path in CHART.rglob("*") if path.is_file() and path.parent != COPIES):
        target = copy / source.relative_to(CHART)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    crd = copy / "files" / "crds" / "x.yaml"
    crd.parent.mkdir(parents=True)
    crd.write_text(
        f"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n{body}", encoding="utf-8"
    )
    return copy


@pytest.mark.parametrize(
    ("scope", "install", "expected"),
    [
        ("cluster", None, True),
        ("cluster", True, True),
        ("cluster", False, False),
        ("namespace", None, False),
        ("namespace", True, True),
        ("namespace", False, False),
    ],
)
def test_who_installs_the_crds(scope: str, install: bool | None, expected: bool) -> None:
    objects = render({"scope": scope, "crds": {"install": install}})
    assert ("CustomResourceDefinition" in kinds(objects)) is expected
