"""How to reach a cluster, and as whom: a pod's own account, or a kubeconfig."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fray.kube.official_client import config

__all__ = ["Configuration", "load_account", "load_configuration"]

LOCK_SECONDS = 0.01
"""Between two looks whether another thread has loaded its kubeconfig."""

_loading = threading.Lock()
"""Held while the official client has written private keys to files, which all threads share."""


def _renew_lock() -> None:
    """Forget who held it: that thread isn't in this process."""
    global _loading  # noqa: PLW0603 - of the process
    _loading = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@dataclass
class Configuration:
    """An API server, and as whom it is asked. The names are those that the official client's readers set.

    The official client's own class of this name would import aiohttp.
    """

    host: str = "http://localhost"
    proxy: str | None = None
    """URL of the proxy of a kubeconfig; the environment may name one, too."""
    tls_server_name: str | None = None
    """The name in the server's certificate, where it isn't the host's."""
    verify_ssl: bool = True
    ssl_ca_cert: str | None = None
    """File with the authority of the server's certificate; None: the system's."""
    cert_file: str | None = None
    key_file: str | None = None
    api_key: dict[str, str] = field(default_factory=dict, repr=False)
    """`BearerToken`: the header `Authorization`."""
    refresh_api_key_hook: Callable[[Configuration], None] | None = None
    """Reads a pod's token anew where it is old; raises `ConfigException`, OSError and UnicodeDecodeError."""
    tls: ssl.SSLContext | None = None
    """What `load_tls` read from the files."""

    def load_tls(self) -> None:
        """Read the certificates; raises OSError."""
        if not self.host.startswith("https:"):
            return
        self.tls = ssl.create_default_context(cafile=self.ssl_ca_cert)
        if self.cert_file:
            self.tls.load_cert_chain(self.cert_file, self.key_file)
        if not self.verify_ssl:
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE

    def read_authorization(self) -> str | None:
        """Return the header `Authorization` of this moment; raises what `refresh_api_key_hook` does."""
        if self.refresh_api_key_hook is not None:
            self.refresh_api_key_hook(self)
        # As client-go does: a token's file may end with a line break, which no header can hold.
        return self.api_key.get("BearerToken", "").strip() or None


def load_account() -> Configuration:
    """Return the API server of this pod, and its account; raises `ConfigException` where there is none."""
    configuration = Configuration()
    config.load_incluster_config(configuration)
    configuration.load_tls()
    return configuration


async def load_configuration(*, kubeconfig: str | None = None, context: str | None = None) -> Configuration:
    """Return how to reach the cluster: in a pod its own account, else the kubeconfig's context.

    Raises `kubernetes.aio.config.ConfigException` when neither is there.
    """
    if kubeconfig is None and context is None:
        with suppress(config.ConfigException):  # no pod
            return load_account()
    configuration = Configuration()
    async with _removing_files():
        loader = await config.load_kube_config(
            kubeconfig, context=context, client_configuration=configuration
        )
        _check_plugin(loader, configuration)
        configuration.load_tls()
    return configuration


@asynccontextmanager
async def _removing_files() -> AsyncIterator[None]:
    """Remove the files that the official client writes within the context: certificates and private keys.

    It would do so at the end of the process, but `fray` ends without that.
    """
    lock = _loading
    while not lock.acquire(blocking=False):  # noqa: ASYNC110 - another thread holds it
        await asyncio.sleep(LOCK_SECONDS)  # a user's program may run for long, on this very loop
    kept = frozenset(config.kube_config._temp_files)
    try:
        yield
    finally:
        _remove_files(kept)
        lock.release()


def _remove_files(kept: frozenset[str]) -> None:
    """Remove what the official client has written, but for some contents."""
    files = config.kube_config._temp_files
    for content in files.keys() - kept:
        Path(files.pop(content)).unlink(missing_ok=True)


def _check_plugin(loader: Any, configuration: Configuration) -> None:
    """Raise `ConfigException` where a kubeconfig's program should have given credentials, and gave none.

    The official client only logs that, and goes on as nobody (kube_config.py of kubernetes 37).
    """
    plugin = loader._user.value.get("exec") if loader._user else None
    if plugin is not None and not (configuration.api_key or configuration.cert_file):
        command = plugin.get("command")
        raise config.ConfigException(
            f"the program {command!r} of its user gave no credentials: run it by hand"
        )
