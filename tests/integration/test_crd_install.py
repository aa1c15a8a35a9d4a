"""The API server takes the CRD, and shows FrayJobs as people ask for them."""

from __future__ import annotations

import json
import ssl
from typing import Any
from urllib.request import Request, urlopen

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from fray.wire.frayactor import FRAYACTOR
from tests.integration.controller.hands import eventually
from tests.integration.frayjobs import CRD_COLLECTION, FrayJobs
from tests.manifests.corpus import good_actors, good_manifests

CRD = f"{CRD_COLLECTION}/frayjobs.fray.dev"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def test_the_crd_is_established_without_objection(api: Api) -> None:
    conditions = {c["type"]: (c["status"], c["message"]) for c in api.get(CRD).body["status"]["conditions"]}
    assert {kind: status for kind, (status, _) in conditions.items()} == {
        "NamesAccepted": "True",
        "Established": "True",
    }, conditions


def test_the_crd_stays_small_enough_for_client_side_apply(api: Api) -> None:
    # kubectl keeps a copy in an annotation, and all annotations may have 256 KiB.
    assert len(json.dumps(api.get(CRD).body["spec"])) < 100_000


def test_both_kinds_are_found_by_short_name_and_category(api: Api) -> None:
    resources = {r["name"]: r for r in api.get("/apis/fray.dev/v1alpha1").body["resources"]}
    for plural in ("frayjobs", "frayactors"):
        assert {plural, f"{plural}/status", f"{plural}/scale"} <= set(resources)
    for plural, short in (("frayjobs", "fj"), ("frayactors", "fa")):
        assert (resources[plural]["shortNames"], resources[plural]["categories"]) == (
            [short],
            ["all", "fray"],
        )
        assert resources[f"{plural}/scale"]["kind"] == "Scale"


def get_table(control_plane: ControlPlane, path: str) -> dict[str, Any]:
    """What kubectl asks for and prints."""
    headers = {"Accept": TABLE, "Authorization": f"Bearer {control_plane.endpoint.token}"}
    trust = ssl.create_default_context(cadata=control_plane.endpoint.authority.decode())
    with urlopen(Request(control_plane.url + path, headers=headers), context=trust, timeout=120) as answer:
        table: dict[str, Any] = json.load(answer)
    return table


def test_kubectl_get_shows_phase_hosts_attempt_and_reason(
    control_plane: ControlPlane, frayjobs: FrayJobs
) -> None:
    minimal = next(case.manifest for case in good_manifests() if case.name == "minimal")
    stored = frayjobs.created(minimal)
    status: dict[str, Any] = {"phase": "Running", "attempt": 2, "reason": "AllHostsRunning", "ready": "3/4"}
    status["workers"] = {"desired": 5, "ready": 1}
    assert frayjobs.api.put(frayjobs.path("minimal", "status"), {**stored, "status": status}).ok

    table = get_table(control_plane, frayjobs.collection)
    wide = [column["name"] for column in table["columnDefinitions"] if column["priority"] > 0]
    shown = dict(zip((c["name"] for c in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    assert wide == ["Workers", "Workers-Ready"]
    assert list(shown) == ["Name", "Phase", "Ready", "Attempt", "Reason", *wide, "Age"]
    assert list(shown.values())[:7] == ["minimal", "Running", "3/4", 2, "AllHostsRunning", 5, 1]


def test_kubectl_get_shows_of_a_frayactor_what_is_ready_and_why_not(
    control_plane: ControlPlane, frayjobs: FrayJobs
) -> None:
    group = next(case.manifest for case in good_actors() if case.name == "group")
    name = group["metadata"]["name"]
    stored = frayjobs.created(group, FRAYACTOR)
    reason = {"type": "Ready", "status": "False", "reason": "MemberFailed", "message": "3 of 4"}
    reason["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"ready": "3/4", "restarts": 2, "replicas": 4, "conditions": [reason]}
    assert frayjobs.api.put(frayjobs.path(name, "status", FRAYACTOR), {**stored, "status": status}).ok

    table = get_table(control_plane, frayjobs.path("", kind=FRAYACTOR))
    columns = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    shown = dict(zip((c["name"] for c in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    assert columns == ["Name", "Actor", "Ready", "Restarts", "Reason", "Age"]
    assert [shown[column] for column in columns[:5]] == [
        name,
        group["spec"]["name"],
        "3/4",
        2,
        "MemberFailed",
    ]


def test_kubectl_explain_says_something_about_every_field(api: Api) -> None:
    path = "/openapi/v3/apis/fray.dev/v1alpha1"
    # It is written by a controller that isn't waited for by those who use the kind.
    eventually(lambda: "dev.fray.v1alpha1.FrayJob" in json.dumps(api.get(path).body))
    served = api.get(path).body
    schema = served["components"]["schemas"]["dev.fray.v1alpha1.FrayJob"]
    assert fields_without_description(schema["properties"]["spec"], "spec") == []
    assert fields_without_description(schema["properties"]["status"], "status") == []


def fields_without_description(schema: dict[str, Any], path: str) -> list[str]:
    """Paths of all fields below that `kubectl explain` would have nothing to say about."""
    found = []
    for name, field in schema.get("properties", {}).items():
        found += [] if field.get("description") else [f"{path}.{name}"]
        found += fields_without_description(field, f"{path}.{name}")
    if "items" in schema:
        found += fields_without_description(schema["items"], f"{path}[]")
    return found
