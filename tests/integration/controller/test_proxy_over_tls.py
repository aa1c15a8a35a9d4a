"""The proxy as operators in pods meet it: by TLS, at an address that an authority vouches for."""

from __future__ import annotations

import ssl
from pathlib import Path

from e2e.cluster.api import Api
from e2e.cluster.certificates import Authority, write_private
from e2e.cluster.controlplane import ControlPlane
from e2e.faulty_proxy import Fault, FaultyProxy, Harm


def test_it_passes_on_who_asks_and_refuses_when_it_is_told_to(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    authority = Authority()
    pair = authority.issue_server("proxy", ["127.0.0.1"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(
        write_private(tmp_path / "crt", pair.certificate), write_private(tmp_path / "key", pair.key)
    )
    endpoint = control_plane.endpoint
    with FaultyProxy(endpoint, tls=tls, remember=False) as proxy:
        known = Api(proxy.url, authority=authority.certificate, token=endpoint.token)
        unknown = Api(proxy.url, authority=authority.certificate, token="nobody's")
        assert known.get("/api/v1/namespaces").ok
        assert unknown.get("/api/v1/namespaces").status == 401
        proxy.rule = lambda call: Fault(Harm.ANSWER, 429, "TooManyRequests") if call.method == "GET" else None
        assert known.get("/api/v1/namespaces").status == 429
        assert proxy.cut_all_watches() == 0
        assert proxy.calls == []
