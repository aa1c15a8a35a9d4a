"""A server over TLS, as a kubeconfig leads to it, and what is left of its credentials on the disk."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes.aio.config import load_kube_config

from fray.kube.client import KubernetesApi
from fray.kube.configuration import Configuration, load_configuration
from fray.kube.errors import UnreachableError
from fray.kube.resources import LEASES

NAME = "kubernetes.test"
LIST = {"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}


def write_key(folder: Path) -> tuple[Path, Path]:
    """Write a private key and a certificate that it has signed itself; return their files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir()
    certificate, private = folder / "tls.crt", folder / "tls.key"
    pem = serialization.Encoding.PEM
    certificate.write_bytes(signed.public_bytes(pem))
    encoding = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(pem, *encoding))
    return certificate, private


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = json.dumps(LIST).encode()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()
    writer.close()


@asynccontextmanager
async def serve(folder: Path, **cluster: Any) -> AsyncIterator[Path]:
    """Answer one user over TLS; the value is the kubeconfig of that user."""
    own, user = write_key(folder / "server"), write_key(folder / "user")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(user[0]))
    context.load_cert_chain(*own)
    context.verify_mode = ssl.CERT_REQUIRED
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        yield write_kubeconfig(folder / "config", port, own[0], user, cluster)


def write_kubeconfig(
    path: Path, port: int, authority: Path, user: tuple[Path, Path], more: Mapping[str, Any]
) -> Path:
    """Write a kubeconfig that holds certificates and the private key."""
    read, known, private = (
        base64.b64encode(each.read_bytes()).decode() for each in (authority, user[0], user[1])
    )
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": read, **more}
    account = {"client-certificate-data": known, "client-key-data": private}
    content = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": account}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


async def list_leases(configuration: Configuration, *, brief: bool) -> str:
    async with KubernetesApi(configuration, brief=brief) as api:
        return [page.resource_version async for page in api.list_pages(LEASES)][-1]


def test_the_user_is_known_by_a_certificate_and_the_server_by_its_name(tmp_path: Path, brief: bool) -> None:
    async def main() -> str:
        async with serve(tmp_path, **{"tls-server-name": NAME}) as kubeconfig:
            return await list_leases(await load_configuration(kubeconfig=str(kubeconfig)), brief=brief)

    assert asyncio.run(main()) == "7"


def test_a_server_of_another_name_is_sent_nothing(tmp_path: Path, brief: bool) -> None:
    async def main() -> None:
        async with serve(tmp_path) as kubeconfig:
            configuration = await load_configuration(kubeconfig=str(kubeconfig))
            with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED") as refused:
                await list_leases(configuration, brief=brief)
            assert not refused.value.was_sent

    asyncio.run(main())


def test_a_server_may_go_unverified(tmp_path: Path, brief: bool) -> None:
    async def main() -> str:
        async with serve(tmp_path, **{"insecure-skip-tls-verify": True}) as kubeconfig:
            return await list_leases(await load_configuration(kubeconfig=str(kubeconfig)), brief=brief)

    assert asyncio.run(main()) == "7"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    own, user = write_key(tmp_path / "server"), write_key(tmp_path / "user")
    return write_kubeconfig(tmp_path / "config", 1, own[0], user, {})


def test_no_private_key_stays_on_the_disk(kubeconfig: Path, files: Path) -> None:
    configuration = asyncio.run(load_configuration(kubeconfig=str(kubeconfig)))
    assert configuration.tls is not None
    assert not list(files.iterdir())


def test_what_others_had_the_official_client_write_stays(kubeconfig: Path, files: Path) -> None:
    other = Configuration()
    asyncio.run(load_kube_config(str(kubeconfig), client_configuration=other))  # type: ignore[arg-type]
    written = sorted(files.iterdir())
    assert len(written) == 3
    asyncio.run(load_configuration(kubeconfig=str(kubeconfig)))
    assert sorted(files.iterdir()) == written


def test_several_threads_may_read_the_same_kubeconfig(kubeconfig: Path, files: Path) -> None:
    loaded: list[Configuration] = []

    def load() -> None:
        async def main() -> None:
            for _ in range(3):
                loads = (load_configuration(kubeconfig=str(kubeconfig)) for _ in range(2))
                loaded.extend(await asyncio.gather(*loads))

        asyncio.run(main())

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 12
    assert not list(files.iterdir())


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(Configuration(api_key={"BearerToken": "secret"}))


def test_a_command_that_asks_once_does_without_aiohttp(tmp_path: Path) -> None:
    program = (
        "import sys, fray.cluster.cluster_spec as s, fray.cluster.kubernetes.cluster as k\n"
        "cluster = k.KubernetesCluster(s.KubernetesSpec(), brief=True)\n"
        "print(cluster.get_all(), 'aiohttp' in sys.modules)"
    )

    async def main() -> bytes:
        async with serve(tmp_path, **{"tls-server-name": NAME}) as kubeconfig:
            environ = {"KUBECONFIG": str(kubeconfig)}
            ran = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, env=environ, stdout=subprocess.PIPE
            )
            return (await ran.communicate())[0]

    assert asyncio.run(main()) == b"[] False\n"
