"""The official client is imported without what Fray doesn't need, which is there for who asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST = (
    "import sys, fray.kube.client\n"
    "assert not {'kubernetes.client', 'google.auth', 'urllib3', 'aiohttp'} & set(sys.modules)\n"
)


@pytest.mark.parametrize(
    "program",
    [
        FIRST + "import kubernetes; print(kubernetes.client.V1Pod.__name__)",
        FIRST + "from kubernetes import client; print(client.V1Pod.__name__)",
        FIRST + "from kubernetes.client import V1Pod; print(V1Pod.__name__)",
        FIRST + "from kubernetes import *; print(client.V1Pod.__name__)",
        FIRST + "import kubernetes; assert kubernetes.__version__; print(kubernetes.client.V1Pod.__name__)",
        FIRST + "import kubernetes.config; assert kubernetes.config.load_kube_config; print('V1Pod')",
        FIRST + "from kubernetes.aio import dynamic; assert dynamic.DynamicClient; print('V1Pod')",
        FIRST + "import kubernetes.aio as aio; assert aio.watch.Watch; print(aio.client.V1Pod.__name__)",
        FIRST + "from kubernetes.aio.client import V1Pod; print(V1Pod.__name__)",
        FIRST + "from kubernetes.aio.client import ApiClient as A; assert A.call_api; print('V1Pod')",
        FIRST + "from kubernetes.aio.config.openid import OpenIDRequestor as O\n"
        "import kubernetes.aio.config.kube_config as k\n"
        "assert type(k.OpenIDRequestor('a', 'b', 'c')) is O; print('V1Pod')",
        FIRST
        + "import kubernetes.aio.config.kube_config as k; from kubernetes.aio.client import Configuration\n"
        "assert type(k.Configuration()) is type.__call__(k.Configuration).__class__ is Configuration\n"
        "print('V1Pod')",
        "import kubernetes, fray.kube.client; print(kubernetes.client.V1Pod.__name__)",
    ],
)
def test_the_rest_is_there_for_who_asks_for_it(program: str) -> None:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "V1Pod\n"), ran.stderr


def test_what_it_does_not_have_is_missing_as_ever() -> None:
    program = FIRST + "import kubernetes\nkubernetes.nothing"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stderr.endswith("AttributeError: module 'kubernetes' has no attribute 'nothing'\n")
