"""A pod's own rights are enough to hand an outcome over, and to nothing that isn't its own."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from e2e.cluster.api import Api
from e2e.cluster.controlplane import ControlPlane
from fray.errors import OutcomeUploadError
from fray.payload.outcome import OUTCOME_LIMIT, decode_outcome, encode_value
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.outcome_upload import OutcomePlace, upload_outcome
from tests.integration.controller.hands import eventually
from tests.integration.frayjobs import FrayJobs

RBAC = "rbac.authorization.k8s.io"


def allow(api: Api, namespace: str, account: str, verbs: list[str]) -> str:
    """Make a service account that may do this with ConfigMaps, and return its token."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    assert api.post(accounts, {"metadata": {"name": account}}).ok
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]
    roles = f"/apis/{RBAC}/v1/namespaces/{namespace}"
    assert api.post(f"{roles}/roles", {"metadata": {"name": account}, "rules": rules}).ok
    binding = {
        "metadata": {"name": account},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    assert api.post(f"{roles}/rolebindings", binding).ok
    return str(api.post(f"{accounts}/{account}/token", {"spec": {}}).body["status"]["token"])


@pytest.fixture
def authority(control_plane: ControlPlane, tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_bytes(control_plane.endpoint.authority)
    return path


def connect(control_plane: ControlPlane, namespace: str, token: str, authority: Path) -> ApiClient:
    token_file = authority.with_name("token")
    token_file.write_text(token)
    return ApiClient(ApiAccess(control_plane.url, namespace, token_file, authority))


def test_the_largest_outcome_reaches_the_client_once(
    control_plane: ControlPlane, api: Api, frayjobs: FrayJobs, authority: Path
) -> None:
    token = allow(api, frayjobs.namespace, "fray-job", ["create", "get"])
    # The server knows of rights a moment after they were written.
    pod = Api(control_plane.url, authority=control_plane.endpoint.authority, token=token)
    eventually(lambda: pod.get(f"/api/v1/namespaces/{frayjobs.namespace}/configmaps/none").status == 404)
    client = connect(control_plane, frayjobs.namespace, token, authority)
    place = OutcomePlace("fray-outcome-u-1-0", "train", "0c5cbe77-4b5e-4d5b-9d0a-6a1f3c1c7f51", 1)
    value = bytes(OUTCOME_LIMIT - 500)
    outcome = encode_value(value)
    assert len(outcome.data) > OUTCOME_LIMIT - 500
    upload_outcome(client, place, outcome.data)
    upload_outcome(client, place, outcome.data)
    with pytest.raises(OutcomeUploadError, match="another outcome is there already"):
        upload_outcome(client, place, b"other")
    kept = api.get(f"/api/v1/namespaces/{frayjobs.namespace}/configmaps/{place.name}").body
    data = base64.b64decode(kept["binaryData"]["outcome"])
    assert decode_outcome(data, sha256=outcome.sha256).result() == value
    assert kept["metadata"]["ownerReferences"][0]["kind"] == "FrayJob"


def test_a_right_that_is_missing_is_named(
    control_plane: ControlPlane, api: Api, frayjobs: FrayJobs, authority: Path
) -> None:
    token = allow(api, frayjobs.namespace, "fray-job", ["get"])
    client = connect(control_plane, frayjobs.namespace, token, authority)
    with pytest.raises(OutcomeUploadError, match=r"403 Forbidden: .*cannot create resource \"configmaps\""):
        upload_outcome(client, OutcomePlace("fray-outcome-u-1-0", "train", "u", 1), b"outcome")


def test_a_server_that_cannot_prove_itself_gets_no_token(
    control_plane: ControlPlane, frayjobs: FrayJobs, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    access = ApiAccess(control_plane.url, frayjobs.namespace, token, None)  # the system's authorities
    paused: list[float] = []
    with pytest.raises(OutcomeUploadError, match="CERTIFICATE_VERIFY_FAILED"):
        upload_outcome(
            ApiClient(access, pause=paused.append), OutcomePlace("fray-outcome-u-1-0", "train", "u", 1), b"x"
        )
