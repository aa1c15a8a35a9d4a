"""Which program a name stands for: the pinned one, or that of the skew which is tested."""

from __future__ import annotations

import pytest

from e2e.cluster.errors import UnknownProgramError
from e2e.cluster.versions import load_parts, part_named, program_named


@pytest.mark.parametrize("skew", ["lowest", "newest"])
def test_a_skew_has_another_api_server_and_nothing_else(skew: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, kubectl = program_named("apiserver"), program_named("kubectl")
    monkeypatch.setenv("FRAY_SKEW", skew)
    other, _ = program_named("apiserver")
    assert (other.name, other.version != pinned[0].version) == (f"kubernetes-{skew}", True)
    assert program_named("kubectl") == kubectl


@pytest.mark.parametrize("skew", ["jobset-older", "jobset-lowest"])
def test_a_skew_of_jobset_takes_its_place_and_its_name(skew: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, apiserver = part_named("jobset"), program_named("apiserver")
    monkeypatch.setenv("FRAY_SKEW", skew)
    other = part_named("jobset")
    assert (other.name, other.module, other.version != pinned.version) == (skew, pinned.module, True)
    assert program_named("jobset-controller")[0] == other
    assert program_named("apiserver") == apiserver


def test_several_skews_are_asked_for_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAY_SKEW", "lowest,jobset-lowest")
    assert program_named("apiserver")[0].name == "kubernetes-lowest"
    assert part_named("jobset").name == "jobset-lowest"


def test_parts_of_a_skew_are_built_only_where_it_is_asked_for() -> None:
    assert not [name for name, part in load_parts({}).items() if part.name != name or "-" in name]


@pytest.mark.parametrize("skew", ["oldest", "lowest,oldest"])
def test_a_skew_that_is_not_pinned_is_refused(skew: str) -> None:
    with pytest.raises(UnknownProgramError, match=r"'oldest'.*jobset-lowest, jobset-older, lowest, newest"):
        load_parts({"FRAY_SKEW": skew})


def test_what_is_built_on_demand_can_be_named() -> None:
    assert [name for name, part in load_parts().items() if part.on_demand] == ["kubeadm", "crictl"]
    assert program_named("kubeadm")[0].version == program_named("kubelet")[0].version
