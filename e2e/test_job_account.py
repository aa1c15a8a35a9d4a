"""What the account of job pods may do and what not, by requests that a job's pod really sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from e2e.job_namespace import JobNamespace, build_job, build_shell
from fray.vocabulary import API_VERSION, FRAYACTOR_KIND, JOBSET_API_VERSION

SOURCE = (Path(__file__).parent / "programs" / "ask_api_server.py").read_text(encoding="utf-8")
FORBIDDEN = 403


class Request(NamedTuple):
    """One request and the answer that it must get; a path without `/api` is one in the job's namespace."""

    status: int
    method: str
    path: str
    body: dict[str, Any] | None = None


CORE = "/api/v1/namespaces/{namespace}"
FRAY = f"/apis/{API_VERSION}/namespaces/{{namespace}}"
JOBSETS = f"/apis/{JOBSET_API_VERSION}/namespaces/{{namespace}}/jobsets"
CHILD = build_shell("child", "true", suspend=True)
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
ACTOR = {
    "apiVersion": API_VERSION,
    "kind": FRAYACTOR_KIND,
    "metadata": {"name": "counter"},
    "spec": {"name": "counter", "entrypoint": {"class": "collections:Counter"}, "suspend": True},
}
ROLE = {"metadata": {"name": "more"}, "rules": []}

ALLOWED = (
    # It starts, changes, reads and ends jobs, ...
    Request(201, "POST", f"{FRAY}/frayjobs", CHILD),
    Request(200, "GET", f"{FRAY}/frayjobs"),
    Request(200, "GET", f"{FRAY}/frayjobs/asker"),
    Request(200, "PATCH", f"{FRAY}/frayjobs/child", {"spec": {"stopped": True}}),
    Request(200, "DELETE", f"{FRAY}/frayjobs/child"),
    # ... starts and sees actors, ...
    Request(201, "POST", f"{FRAY}/frayactors", ACTOR),
    Request(200, "GET", f"{FRAY}/frayactors/counter"),
    # ... hands over payloads that it can't read back, and results that it can, ...
    Request(201, "POST", f"{CORE}/secrets", {"metadata": {"name": "payload"}}),
    Request(201, "POST", f"{CORE}/configmaps", {"metadata": {"name": "result"}, "data": {"sum": "6"}}),
    Request(200, "GET", f"{CORE}/configmaps/result"),
    # ... and sees how its children fare.
    Request(200, "GET", f"{CORE}/pods"),
    Request(200, "GET", f"{CORE}/pods/{{pod}}"),
    Request(200, "GET", f"{CORE}/pods/{{pod}}/log"),
    Request(200, "GET", JOBSETS),
)
REFUSED = (
    Request(FORBIDDEN, "GET", f"{CORE}/secrets"),
    Request(FORBIDDEN, "GET", f"{CORE}/secrets/payload"),
    Request(FORBIDDEN, "DELETE", f"{CORE}/secrets/payload"),
    Request(FORBIDDEN, "GET", f"{CORE}/configmaps"),
    Request(FORBIDDEN, "DELETE", f"{CORE}/configmaps/result"),
    # The status of a job, or of an actor, is the operator's word.
    Request(FORBIDDEN, "PATCH", f"{FRAY}/frayjobs/asker/status", {"status": {"phase": "Succeeded"}}),
    Request(FORBIDDEN, "PATCH", f"{FRAY}/frayactors/counter/status", {"status": {"readyReplicas": 1}}),
    Request(FORBIDDEN, "PUT", f"{FRAY}/frayactors/counter/status", ACTOR),
    # Pods come about through jobs only, and nobody looks into another's.
    Request(FORBIDDEN, "POST", f"{CORE}/pods", POD),
    Request(FORBIDDEN, "DELETE", f"{CORE}/pods/{{pod}}"),
    Request(FORBIDDEN, "POST", f"{CORE}/pods/{{pod}}/exec"),
    Request(FORBIDDEN, "POST", JOBSETS, {"metadata": {"name": "own"}}),
    Request(FORBIDDEN, "DELETE", f"{JOBSETS}/asker-a1"),
    # No way to more rights, and none out of its namespace.
    Request(FORBIDDEN, "POST", f"{CORE}/serviceaccounts/default/token", {"spec": {}}),
    Request(FORBIDDEN, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles", ROLE),
    Request(FORBIDDEN, "GET", "/api/v1/nodes"),
    Request(FORBIDDEN, "GET", "/api/v1/namespaces"),
    Request(FORBIDDEN, "GET", f"/apis/{API_VERSION}/frayjobs"),
    Request(FORBIDDEN, "POST", f"/apis/{API_VERSION}/namespaces/default/frayjobs", CHILD),
    Request(FORBIDDEN, "POST", f"/apis/{API_VERSION}/namespaces/default/frayactors", ACTOR),
    Request(FORBIDDEN, "GET", "/api/v1/namespaces/fray-system/pods"),
)


def test_a_job_pod_can_do_what_it_must_and_nothing_else(jobs: JobNamespace) -> None:
    requests = [r._replace(path=r.path.replace("{namespace}", jobs.name)) for r in (*ALLOWED, *REFUSED)]
    told = json.dumps([[r.method, r.path, r.body] for r in requests])
    own_name = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    job = build_job("asker", ["python3", "-c", SOURCE, told], environment={"env": [own_name]})
    status = jobs.run(job)
    assert status["phase"] == "Succeeded", status
    (log,) = jobs.logs("asker")
    answered = [r._replace(status=status) for r, status in zip(requests, json.loads(log), strict=True)]
    assert answered == requests
