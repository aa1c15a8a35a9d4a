"""Which program a name stands for: the pinned one, or that of the skew which is tested."""

from __future__ import annotations

import pytest

from e2e.cluster.errors import UnknownProgramError
from e2e.cluster.versions import load_parts, program_named


@pytest.mark.parametrize("skew", ["lowest", "newest"])
def test_a_skew_has_another_api_server_and_nothing_else(skew: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, kubectl = program_named("apiserver"), program_named("kubectl")
    monkeypatch.setenv("FRAY_SKEW", skew)
    other, _ = program_named("apiserver")
    assert (other.name, other.version != pinned[0].version) == (f"kubernetes-{skew}", True)
    assert program_named("kubectl") == kubectl


def test_parts_of_a_skew_are_built_only_where_it_is_asked_for() -> None:
    assert not [name for name in load_parts({}) if name.startswith("kubernetes-")]


def test_a_skew_that_is_not_pinned_is_refused() -> None:
    with pytest.raises(UnknownProgramError, match="lowest, newest"):
        load_parts({"FRAY_SKEW": "oldest"})


def test_what_is_built_on_demand_can_be_named() -> None:
    assert [name for name, part in load_parts().items() if part.on_demand] == ["kubeadm", "crictl"]
    assert program_named("kubeadm")[0].version == program_named("kubelet")[0].version
