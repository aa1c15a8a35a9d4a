"""JobSet as a part of an installation: its released chart, unchanged, and only where it is asked for."""

from __future__ import annotations

import tarfile

import yaml

from e2e.cluster.build import module_source
from e2e.cluster.versions import part_named
from tests.chart.rendering import CHART, JOBSET_API, find, kinds, render

VERSION = part_named("jobset").version
ARCHIVE = CHART / "charts" / f"jobset-{VERSION.removeprefix('v')}.tgz"


def test_the_chart_inside_is_that_of_the_release_file_by_file() -> None:
    """For another version: `helm package` the chart in the module's sources into charts/fray/charts."""
    folder = module_source("jobset") / "charts" / "jobset"
    released = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    with tarfile.open(ARCHIVE) as archive:
        inside = {}
        for member in archive.getmembers():
            content = archive.extractfile(member)
            assert content is not None
            inside[member.name.removeprefix("jobset/")] = content.read()
    # Helm writes Chart.yaml anew; .helmignore keeps files out that are no part of a chart.
    chart = yaml.safe_load(inside.pop("Chart.yaml"))
    assert chart == yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))
    assert inside.keys() <= released
    assert {name for name in released if name.startswith(("templates/", "crds/"))} <= inside.keys()
    for name, content in inside.items():
        assert content == (folder / name).read_bytes(), name


def test_no_other_version_is_named_or_lies_there() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    (dependency,) = chart["dependencies"]
    assert (dependency["name"], dependency["version"]) == ("jobset", VERSION.removeprefix("v"))
    assert [path.name for path in (CHART / "charts").iterdir()] == [ARCHIVE.name]
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values["jobset"]["image"]["tag"] == VERSION


def test_jobset_is_installed_where_it_is_asked_for() -> None:
    objects = render({"jobset": {"enabled": True}})
    assert {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} <= kinds(objects)
    images = {
        container["image"]
        for candidate in objects
        if candidate["kind"] == "Deployment"
        for container in candidate["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"fray-operator:0.1.0", f"registry.k8s.io/jobset/jobset:{VERSION}"}
    ours = find(objects, "Deployment", "fray-operator")
    assert ours == find(render(), "Deployment", "fray-operator")


def test_values_of_jobsets_chart_reach_it() -> None:
    objects = render({"jobset": {"enabled": True, "controller": {"replicas": 2}}})
    (controller,) = (
        candidate
        for candidate in objects
        if candidate["kind"] == "Deployment" and candidate["metadata"]["name"] != "fray-operator"
    )
    assert controller["spec"]["replicas"] == 2


def test_nothing_of_it_is_installed_otherwise() -> None:
    text = str([candidate for candidate in render() if candidate["kind"] != "CustomResourceDefinition"])
    assert "jobset-controller" not in text
    assert JOBSET_API.partition("/")[0] in text, "the operator's rights"
