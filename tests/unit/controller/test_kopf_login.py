"""kopf reaches the API server where the rest of the operator does."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

from fray.testing.memory import MemoryApi, MemoryServer
from fray_operator.queue import WorkQueue
from fray_operator.settings import OperatorSettings
from fray_operator.source import Source

BY_NAME = kopf.ConnectionInfo(server="https://kubernetes.default.svc", ca_path="/ca", token="token")


def build_source(settings: OperatorSettings) -> Source:
    api = MemoryApi(MemoryServer())
    return Source(api, WorkQueue(), [], settings, claim_signals=lambda: None)


def log_in(settings: OperatorSettings) -> kopf.ConnectionInfo | None:
    async def run() -> kopf.ConnectionInfo | None:
        return build_source(settings)._find_connection(settings=kopf.OperatorSettings())

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("environ", "server"),
    [
        (
            {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"},
            "https://10.96.0.1:443",
        ),
        (
            {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"},
            "https://[fd00::1]:6443",
        ),
        ({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, BY_NAME.server),
        ({}, BY_NAME.server),
    ],
)
def test_the_address_comes_from_the_environment_and_the_rest_from_the_account(
    environ: dict[str, str], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: BY_NAME)
    found = log_in(OperatorSettings.from_env(environ))
    assert found is not None
    assert (found.server, found.ca_path, found.token) == (server, BY_NAME.ca_path, BY_NAME.token)


def test_outside_a_pod_the_kubeconfig_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere: Any = kopf.ConnectionInfo(server="https://127.0.0.1:6443")
    monkeypatch.setattr(kopf, "login_with_service_account", lambda **_: None)
    monkeypatch.setattr(kopf, "login_with_kubeconfig", lambda **_: elsewhere)
    assert log_in(OperatorSettings(api_server="https://10.96.0.1:443")) is elsewhere
