"""How to reach a cluster, and as whom: a pod's own account, or a kubeconfig."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fray.kube.official_client import Configuration, config

__all__ = ["load_configuration"]


async def load_configuration(*, kubeconfig: str | None = None, context: str | None = None) -> Configuration:
    """Return how to reach the cluster: in a pod its own account, else the kubeconfig's context.

    Raises `kubernetes.aio.config.ConfigException` when neither is there.
    """
    configuration = Configuration()
    if kubeconfig is None and context is None:
        with suppress(config.ConfigException):  # no pod
            config.load_incluster_config(configuration)
            return configuration
    loader = await config.load_kube_config(kubeconfig, context=context, client_configuration=configuration)
    _check_plugin(loader, configuration)
    return configuration


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
