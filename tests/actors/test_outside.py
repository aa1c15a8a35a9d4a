"""Actors that are created and called from outside of the cluster, through port-forwards."""

from __future__ import annotations

import base64
import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fray.cli.actor_commands import call_actor
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.cluster.kubernetes.access import Access
from fray.errors import (
    AccessDeniedError,
    ActorCallFailedError,
    ActorDiedError,
    ActorExistsError,
    ActorNotFoundError,
    InvalidJobError,
    InvalidOptionError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from fray.job import ActorOptions, JobContext, named_actors
from fray.kube.client import KubernetesApi
from fray.kube.configuration import Configuration
from fray.kube.resources import FRAYACTORS, SECRETS
from fray.types import ResourceConfig, create_environment
from tests.actors import programs
from tests.actors.cluster import Cluster, await_no_connection, hosting
from tests.actors.forwarding_cluster import ForwardingCluster
from tests.pool.hosts.pools import PATIENCE, wait_until


@pytest.fixture
def api(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ForwardingCluster:
    keys = {path.name: base64.b64encode(path.read_bytes()).decode() for path in cluster.key.iterdir()}
    secret = {"kind": "Secret", "metadata": {"name": "fray-auth"}, "data": keys}
    cluster.api.store(SECRETS, secret)
    for name in cluster.environ():
        monkeypatch.delenv(name)
    named_actors.find_pod_reach.cache_clear()
    return cluster.api


@pytest.fixture
def laptop(api: ForwardingCluster) -> Iterator[KubernetesCluster]:
    """A client of the namespace in a process that is no pod."""

    async def open_access() -> Access:
        kube = KubernetesApi(Configuration(host=api.url))
        return Access(kube, api.url, "ml", kube.close)

    made = KubernetesCluster(KubernetesSpec(namespace="ml"), open_access=open_access)
    yield made
    made.close()


def test_an_actor_that_is_created_from_outside_is_called_and_its_end_is_told(
    laptop: KubernetesCluster, api: ForwardingCluster, cluster: Cluster, context: JobContext
) -> None:
    image = create_environment(docker_image="train:1")
    counter = laptop.create_actor(programs.Counter, 40, name="lab/counter", environment=image)
    name = cluster.actor("lab/counter")["metadata"]["name"]
    with pytest.raises(ActorExistsError):
        laptop.create_actor(programs.Counter, name="lab/counter", environment=image)
    pod = cluster.start_pod("lab/counter")
    assert context.get(counter.add.remote(2), timeout=PATIENCE) == 42
    assert set(api.forwarded) == {f"{name}-0"}

    # By way of the connection, since nobody there can reach this process; and back by another port-forward.
    large = bytes(3_000_000)
    assert context.get(counter.size.remote(large), timeout=PATIENCE) == len(large)
    assert context.get(counter.give.remote(len(large)), timeout=PATIENCE) == large
    assert list(map(context.get, counter.items.remote(5))) == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="no such lesson"):
        context.get(counter.fail.remote(), timeout=PATIENCE)

    # A connection that breaks is made anew, to the same incarnation.
    first = context.get(counter.pid.remote(), timeout=PATIENCE)
    api.cut()
    await_no_connection()
    assert context.get(counter.add.remote(1), timeout=PATIENCE) == 43

    os.kill(first, signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        context.get(counter.block.remote(), timeout=PATIENCE)
    wait_until(lambda: cluster.record("lab/counter")["startNumber"] == "2")
    pod.await_ready()
    await_no_connection()
    with pytest.raises(ActorDiedError, match="started anew"):
        counter.add.remote(1)
    shared = laptop.create_actor(programs.Counter, name="lab/counter", get_if_exists=True, environment=image)
    assert context.get(shared.add.remote(1), timeout=PATIENCE) == 41
    assert shared == laptop.get_actor(name)


def test_options_of_an_actor_are_keywords_as_in_a_context(
    laptop: KubernetesCluster, cluster: Cluster
) -> None:
    image = create_environment(docker_image="train:1")
    laptop.create_actor(
        programs.Counter,
        name="counter",
        environment=image,
        lifetime="detached",
        preemptible=False,
        num_cpus=0,
        max_task_retries=2,
        idle_timeout=math.inf,
    )
    spec = cluster.actor("counter")["spec"]
    assert (spec["maxTaskRetries"], spec["placement"]["preemptible"]) == (2, False)
    assert (spec["resources"]["cpu"], "idleSeconds" in spec) == ("1m", False)
    with pytest.raises(InvalidOptionError, match="lifetime is 'ephemeral'"):
        laptop.create_actor(programs.Counter, name="other", environment=image, lifetime="ephemeral")


def test_a_group_that_is_there_has_the_members_that_it_has(
    laptop: KubernetesCluster, cluster: Cluster
) -> None:
    image = create_environment(docker_image="train:1")
    for count in (2, 4):
        options = ActorOptions(get_if_exists=True)
        group = laptop.create_actor_group(
            programs.Seat, name="seats", count=count, options=options, environment=image
        )
        assert len(group) == 2
    assert cluster.actor("seats")["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("resources", "cpu", "placement"),
    [
        (ResourceConfig(), "1", {"preemptible": True}),
        (ResourceConfig(cpu=0.5), "500m", {"preemptible": True}),
        (ResourceConfig(preemptible=False), "1", {"preemptible": False}),
        (ResourceConfig(spot=True), "1", {"preemptible": True, "spot": "Required"}),
    ],
)
def test_actors_that_are_created_from_outside_run_where_their_resources_say(
    laptop: KubernetesCluster,
    cluster: Cluster,
    resources: ResourceConfig,
    cpu: str,
    placement: dict[str, Any],
) -> None:
    image = create_environment(docker_image="train:1")
    laptop.create_actor(programs.Counter, name="one", environment=image, resources=resources)
    laptop.create_actor_group(programs.Counter, name="group", count=2, environment=image, resources=resources)
    for label in ("one", "group"):
        spec = cluster.actor(label)["spec"]
        assert (spec["resources"]["cpu"], spec["placement"]) == (cpu, placement)


def call(laptop: KubernetesCluster, method: str, arguments: str | None = None) -> str:
    """Call the actor `shell` as the command line does; return what is printed."""
    output = io.StringIO()
    call_actor("shell", method, arguments, PATIENCE, cluster=laptop, output=output)  # type: ignore[arg-type]
    return output.getvalue()


def test_the_command_line_calls_methods(laptop: KubernetesCluster, cluster: Cluster) -> None:
    laptop.create_actor(
        programs.Counter, 40, name="shell", environment=create_environment(docker_image="train:1")
    )
    cluster.start_pod("shell").await_ready()
    assert call(laptop, "add") == "41\n"
    assert call(laptop, "add", '{"amount": 2}') == "43\n"
    assert call(laptop, "items", "[3]") == "0\n1\n2\n"
    assert call(laptop, "give", "[2]") == "\"b'\\\\x00\\\\x00'\"\n"
    with pytest.raises(ActorCallFailedError, match="fail of actor 'shell' raised KeyError") as failed:
        call(laptop, "fail")
    assert any("in fail" in line for line in failed.value.story)
    assert call(laptop, "echo", "[1e999]") == '"inf"\n'
    refused = (
        *(("add", "{", "JSON"), ("add", "3", "are 3"), ("ad", None, "'ad'")),
        *(
            ("echo", "[NaN]", "NaN is no JSON"),
            ("echo", "[" * 9999, "JSON"),
            ("__init__", "[5]", "'__init__'"),
        ),
    )
    for method, arguments, problem in refused:
        with pytest.raises(InvalidRequestError, match=problem):
            call(laptop, method, arguments)


def test_who_lacks_a_right_is_told_which(
    laptop: KubernetesCluster, api: ForwardingCluster, cluster: Cluster
) -> None:
    with pytest.raises(ActorNotFoundError):
        laptop.get_actor("crew-0")
    group = laptop.create_actor_group(
        programs.Seat, name="crew", count=1, environment=create_environment(docker_image="train:1")
    )
    cluster.start_pod("crew").await_ready()
    member = laptop.get_actor("crew-0")
    for resource in ("secrets", "pods/portforward"):
        api.denied = resource
        with pytest.raises(AccessDeniedError, match=f"may not create {resource}"):
            member.where.remote()
    api.denied = ""
    assert group.wait_ready(timeout=PATIENCE) == [member]
    assert member.where.remote().result(PATIENCE) == "crew/0"
    group.shutdown()
    with pytest.raises(ActorNotFoundError):
        laptop.get_actor("crew-0")


def test_what_a_process_of_a_pod_hosts_is_called_by_a_port_forward_to_that_pod(
    laptop: KubernetesCluster, api: ForwardingCluster, cluster: Cluster, context: JobContext
) -> None:
    with hosting(cluster) as host:
        counter = laptop.get_actor("counter")
        assert context.get(counter.add.remote(2), timeout=PATIENCE) == 7
        assert context.get(counter.pid.remote(), timeout=PATIENCE) == host.pid
        assert set(api.forwarded) == {"train-pod-2"}
    with pytest.raises(UnsupportedFeatureError) as refused:
        laptop.host_actor(programs.Counter, name="counter")
    assert "in no pod of a job" in str(refused.value)
    assert "by create_actor(...)" in str(refused.value)


def test_a_slice_of_several_hosts_is_called_by_a_port_forward_to_its_first_pod(
    laptop: KubernetesCluster, api: ForwardingCluster, cluster: Cluster
) -> None:
    wanted: dict[str, Any] = {
        "environment": create_environment(docker_image="train:1"),
        "resources": ResourceConfig.with_tpu("v5p-16"),
    }
    with pytest.raises(InvalidJobError, match="must be 1 where a member is a TPU slice of several hosts"):
        laptop.create_actor(programs.Shard, name="shard", options=ActorOptions(max_concurrency=2), **wanted)
    assert cluster.api.all(FRAYACTORS) == []
    shard = laptop.create_actor(programs.Shard, name="shard", **wanted)
    cluster.start_slice("shard")
    assert shard.place.remote().result(PATIENCE)[0] == 0
    assert set(api.forwarded) == {"member-0-0"}


def test_port_forwards_are_open_until_a_program_that_ends_has_left_its_pools() -> None:
    program = """
from types import SimpleNamespace
from fray.cluster.kubernetes.actor_reach import ClusterReach
from fray.runtime.pool.local_pool import end_with_process

reach = ClusterReach(None, None)
forward = SimpleNamespace(close=lambda: print("closed"))
reach._forwards["pod", 1] = forward

class Pool:
    def stop(self):
        print("left")

pool = Pool()
end_with_process(pool)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split()[:1] == ["left"]
