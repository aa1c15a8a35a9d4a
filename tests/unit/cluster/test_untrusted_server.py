"""An API server whose certificate the kubeconfig's authority didn't sign, as after the cluster was remade."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import yaml

from fray.cluster.answers import CheckResult, Mark
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.access import open_access
from fray.cluster.kubernetes.examination import examine
from fray.errors import ClusterUnreachableError
from fray.runtime.pool.transport.keys import CERTIFICATE_FILE, PRIVATE_KEY_FILE
from tests.pool.transport.certificates import write_key


async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def examine_untrusted(folder: Path) -> list[CheckResult]:
    served, known = write_key(folder / "served"), write_key(folder / "known")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(served / CERTIFICATE_FILE, served / PRIVATE_KEY_FILE)
    server = await asyncio.start_server(end, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    cluster = {"server": url, "certificate-authority": str(known / CERTIFICATE_FILE)}
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "one",
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    async with server:
        access = await open_access(KubernetesSpec(), {"KUBECONFIG": str(path)})
        try:
            return await examine(access, KubernetesSpec())
        finally:
            await access.close()


def test_the_credentials_are_to_be_fetched_anew(tmp_path: Path) -> None:
    (found,) = asyncio.run(examine_untrusted(tmp_path))
    assert (found.subject, found.mark) == ("API server", Mark.WRONG)
    assert "isn't trusted" in found.seen
    assert "CERTIFICATE_VERIFY_FAILED" in found.seen
    assert found.next_step is not None
    assert "credentials anew" in found.next_step
    assert "VPN" not in found.next_step


def test_a_server_that_is_silent_is_another_matter() -> None:
    error = ClusterUnreachableError("https://x", "GET /api", "TimeoutError: ")
    assert "no answer" in error.message
    assert "VPN" in error.next_step
