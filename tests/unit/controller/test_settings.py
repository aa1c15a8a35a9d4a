"""What an administrator may set, and what is said about anything else."""

from __future__ import annotations

from dataclasses import fields

import pytest

from fray_operator.settings import OperatorSettings, SettingsError


def test_nothing_needs_to_be_set_and_the_defaults_are_a_promise() -> None:
    settings = OperatorSettings.from_env({})
    assert settings == OperatorSettings()
    assert settings.namespaces == ()
    assert (settings.lease_seconds, settings.backoff_seconds, settings.backoff_cap_seconds) == (15, 10, 360)
    assert (settings.settle_seconds, settings.unreachable_seconds) == (5, 60)
    assert (settings.http_port, settings.workers, settings.log_level) == (8080, 8, "INFO")


def test_everything_can_be_set() -> None:
    environ = {
        "FRAY_NAMESPACES": "a, b,,",
        "FRAY_READ_NODES": "False",
        "FRAY_RUNTIME_IMAGE": "image:1",
        "FRAY_INJECTOR_IMAGE": "operator:1",
        "FRAY_SERVICE_ACCOUNT": "account",
        "FRAY_METADATA_SERVER": "false",
        "FRAY_KUEUE_ELASTIC_JOBS": "true",
        "FRAY_POD_NAME": "pod",
        "FRAY_LEASE_NAMESPACE": "system",
        "FRAY_LEASE_NAME": "lease",
        "FRAY_LEASE_SECONDS": "7.5",
        "FRAY_HTTP_HOST": "127.0.0.1",
        "FRAY_HTTP_PORT": "9000",
        "FRAY_BACKOFF_SECONDS": "0.5",
        "FRAY_BACKOFF_CAP_SECONDS": "60",
        "FRAY_AVOID_SECONDS": "0",
        "FRAY_SETTLE_SECONDS": "0",
        "FRAY_UNREACHABLE_SECONDS": "90",
        "FRAY_NODE_POOLS": "gke",
        "FRAY_GKE_CLUSTER": "projects/p/locations/l/clusters/c",
        "FRAY_MAX_POOLS": "2",
        "FRAY_MAX_CHIPS": "tpu-v5p-slice=64,nvidia-l4=8",
        "FRAY_POOL_IDLE_SECONDS": "60",
        "FRAY_POOL_ZONES": "us-east5-a,us-east5-b",
        "FRAY_POOL_SPOT": "true",
        "FRAY_POOL_SERVICE_ACCOUNT": "nodes@p.iam.gserviceaccount.com",
        "FRAY_WORKERS": "3",
        "FRAY_LOG_LEVEL": "debug",
        "KUBECONFIG": "/config",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    settings, default = OperatorSettings.from_env(environ), OperatorSettings()
    assert [f.name for f in fields(settings) if getattr(settings, f.name) == getattr(default, f.name)] == []
    assert settings.namespaces == ("a", "b")
    assert settings.log_level == "DEBUG"


def test_empty_variables_count_as_unset() -> None:
    names = ("FRAY_NAMESPACES", "FRAY_READ_NODES", "FRAY_LEASE_SECONDS", "FRAY_HTTP_PORT", "FRAY_POD_NAME")
    assert OperatorSettings.from_env(dict.fromkeys(names, "")) == OperatorSettings()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("FRAY_READ_NODES", "yes", "FRAY_READ_NODES=yes: legal are true and false"),
        ("FRAY_LEASE_SECONDS", "0", "FRAY_LEASE_SECONDS=0: must be a number above 0"),
        ("FRAY_LEASE_SECONDS", "-1", "FRAY_LEASE_SECONDS=-1: must be a number above 0"),
        ("FRAY_LEASE_SECONDS", "nan", "FRAY_LEASE_SECONDS=nan: must be a number above 0"),
        ("FRAY_BACKOFF_SECONDS", "inf", "FRAY_BACKOFF_SECONDS=inf: must be a number above 0"),
        ("FRAY_BACKOFF_CAP_SECONDS", "1m", "FRAY_BACKOFF_CAP_SECONDS=1m: must be a number above 0"),
        ("FRAY_AVOID_SECONDS", "-1", "FRAY_AVOID_SECONDS=-1: must be a number of at least 0"),
        ("FRAY_SETTLE_SECONDS", "-1", "FRAY_SETTLE_SECONDS=-1: must be a number of at least 0"),
        ("FRAY_SETTLE_SECONDS", "nan", "FRAY_SETTLE_SECONDS=nan: must be a number of at least 0"),
        ("FRAY_UNREACHABLE_SECONDS", "0", "FRAY_UNREACHABLE_SECONDS=0: must be a number above 0"),
        ("FRAY_WORKERS", "0", "FRAY_WORKERS=0: must be a whole number from 1 to 1000"),
        ("FRAY_WORKERS", "2.5", "FRAY_WORKERS=2.5: must be a whole number from 1 to 1000"),
        ("FRAY_HTTP_PORT", "70000", "FRAY_HTTP_PORT=70000: must be a whole number from 1 to 65535"),
        ("FRAY_HTTP_PORT", "tcp://10.0.0.1:80", "FRAY_HTTP_PORT=tcp://10.0.0.1:80: must be a whole number"),
        ("FRAY_LOG_LEVEL", "TRACE", "FRAY_LOG_LEVEL=TRACE: legal are DEBUG, INFO, WARNING, ERROR"),
    ],
)
def test_anything_else_is_refused_by_name(name: str, text: str, told: str) -> None:
    with pytest.raises(SettingsError) as refused:
        OperatorSettings.from_env({name: text})
    assert str(refused.value).startswith(told)
