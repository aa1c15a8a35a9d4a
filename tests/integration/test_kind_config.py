"""The kind CLI itself reads the config of the test cluster and makes of it the nodes that were meant.

No container engine is needed: kind decodes a config strictly before it asks for one, and up to `kubeadm init`
it only needs answers that `fake_docker` can give.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import kind as provider
from e2e.cluster.build import build
from e2e.cluster.errors import CommandError, MachineError
from e2e.cluster.kind_config import CLUSTER, build_kind_config, rename_hosts
from e2e.cluster.layout import Host, build_layout, parse_taint
from tests.integration.fake_docker import REFUSAL, FakeDocker, write_fake_docker

# The first run on a machine compiles the program.
pytestmark = pytest.mark.timeout(900)

LAYOUT = rename_hosts(build_layout(cpu_hosts=1, gpu_hosts=2))
Config = dict[str, Any]


@pytest.fixture(scope="module")
def kind() -> Path:
    return build(["kind"])["kind"]


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    return write_fake_docker(tmp_path)


@pytest.fixture
def patched_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Path) -> Callable[..., FakeDocker]:
    """Makes this process use a fake docker with the containers given, and the provider's files elsewhere."""

    def patch(*nodes: str) -> FakeDocker:
        folder = tmp_path / "docker"
        folder.mkdir()
        fake = write_fake_docker(folder, nodes=nodes)
        for name, value in fake.environment.items():
            if name != "HOME":  # the program is built already, under the real one
                monkeypatch.setenv(name, value)
        monkeypatch.setattr(provider, "KUBECONFIG", tmp_path / "checkout" / "kubeconfig")
        monkeypatch.setattr(provider, "cache_root", lambda: tmp_path / "cache")
        return fake

    return patch


def read_documents(text: str) -> Mapping[str, Any]:
    """The documents of a kubeadm config by their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_kind_takes_the_config_and_gives_each_host_its_node(kind: Path, docker: FakeDocker) -> None:
    """Only a real container is missing in the end; until then kind has made every node as the layout says."""
    done = docker.create_cluster(kind, yaml.safe_dump(build_kind_config(LAYOUT)))
    assert done.returncode != 0
    assert REFUSAL in done.stderr
    assert "kubeadm init" in done.stderr, done.stderr
    created = [call.split()[2] for call in docker.calls() if call.startswith("run --name ")]
    assert sorted(created) == sorted(host.name for host in LAYOUT.hosts)
    for host in LAYOUT.hosts:
        documents = read_documents(docker.received(host.name, "kubeadm"))
        kind_of_registration = "InitConfiguration" if host.is_control_plane else "JoinConfiguration"
        assert_registered(host, documents[kind_of_registration]["nodeRegistration"])
        networking = documents["ClusterConfiguration"]["networking"]
        assert networking == {"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/16"}


def test_nodes_from_an_image_made_here_do_without_what_no_process_may(kind: Path, docker: FakeDocker) -> None:
    image = "fray.test/kind-node:1"
    done = docker.create_cluster(kind, yaml.safe_dump(build_kind_config(LAYOUT, image=image)))
    assert "kubeadm init" in done.stderr, done.stderr
    created = [call for call in docker.calls() if call.startswith("run --name ")]
    assert [call.split()[-1] for call in created] == [image] * len(LAYOUT.hosts)
    documents = read_documents(docker.received(LAYOUT.control_plane.name, "kubeadm"))
    assert documents["KubeletConfiguration"]["featureGates"] == {"KubeletInUserNamespace": True}
    assert documents["KubeProxyConfiguration"]["oomScoreAdj"] == 0


def assert_registered(host: Host, registration: Mapping[str, Any]) -> None:
    """A node joins with the labels and taints of its host, and a first node without any taint."""
    labels = registration["kubeletExtraArgs"]["node-labels"].split(",")
    assert dict(label.split("=") for label in labels) == dict(host.labels)
    assert registration["taints"] == [parse_taint(text) for text in host.taints]


def test_kind_asks_for_an_engine_only_after_it_has_read_the_config(kind: Path, docker: FakeDocker) -> None:
    """Where no engine answers, a good config gets as far as its absence, and a bad one doesn't."""
    (docker.folder / "docker").write_text(f"#!/bin/sh\necho {REFUSAL} >&2\nexit 1\n")
    good = build_kind_config(LAYOUT)
    unanswered = docker.create_cluster(kind, yaml.safe_dump(good)).stderr
    assert "failed to get docker info" in unanswered
    assert REFUSAL in unanswered
    bad = yaml.safe_dump(good | {"nodez": []})
    refused = docker.create_cluster(kind, bad).stderr
    assert "field nodez not found" in refused
    assert REFUSAL not in refused


def set_unknown_field(config: Config) -> None:
    config["nodes"][1]["taints"] = config["nodes"][1].pop("labels")


def set_role(config: Config) -> None:
    config["nodes"][1]["role"] = "tpu-worker"


def set_version(config: Config) -> None:
    config["apiVersion"] = "kind.x-k8s.io/v1alpha5"


def set_labels(config: Config) -> None:
    config["nodes"][1]["labels"]["cloud.google.com/gke-nodepool"] = ["tpu-a", "tpu-b"]


def set_subnet(config: Config) -> None:
    config["networking"]["podSubnet"] = "10.244.0.0"


def set_patch(config: Config) -> None:
    config["nodes"][1]["kubeadmConfigPatches"] = [{"kind": "JoinConfiguration"}]


def remove_control_plane(config: Config) -> None:
    del config["nodes"][0]


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (set_unknown_field, "field taints not found in type v1alpha4.Node"),
        (set_role, '"tpu-worker" is not a valid node role'),
        (set_version, "unknown apiVersion: kind.x-k8s.io/v1alpha5"),
        (set_labels, "cannot unmarshal !!seq into string"),
        (set_subnet, "invalid pod subnet"),
        (set_patch, "cannot unmarshal !!map into string"),
        (remove_control_plane, "must have at least one control-plane node"),
    ],
)
def test_kind_refuses_a_config_with_a_fault(
    kind: Path, docker: FakeDocker, mutate: Callable[[Config], None], message: str
) -> None:
    """What was wrong in the config would be said by kind, in its own words, before any node is made."""
    config = copy.deepcopy(build_kind_config(LAYOUT))
    mutate(config)
    done = docker.create_cluster(kind, yaml.safe_dump(config))
    assert done.returncode != 0
    assert message in done.stderr
    assert docker.nodes() == []
    assert not any(call.startswith("run ") for call in docker.calls())


def test_images_go_into_the_hosts_that_are_named(
    tmp_path: Path, patched_docker: Callable[..., FakeDocker]
) -> None:
    """`import_images` hands the archive to each of them as it is, and to no other."""
    docker = patched_docker(*(host.name for host in LAYOUT.hosts))
    archive = tmp_path / "image.tar"
    archive.write_text("layers")
    chosen = LAYOUT.pool("tpu-b")
    provider.import_images([archive], hosts=chosen)
    received = {path.name for path in docker.folder.glob("*.archive")}
    assert received == {f"{host.name}.archive" for host in chosen}
    assert docker.received(chosen[0].name, "archive") == "layers"


def test_down_removes_the_containers_and_is_harmless_without_any(
    patched_docker: Callable[..., FakeDocker],
) -> None:
    """Also twice, and the user's own kubeconfig is not touched."""
    docker = patched_docker(*(host.name for host in LAYOUT.hosts))
    progress: list[str] = []
    provider.down(progress=progress.append)
    removed = [call for call in docker.calls() if call.startswith("rm ")]
    assert [set(call.split()[3:]) for call in removed] == [{host.name for host in LAYOUT.hosts}]
    provider.down(progress=progress.append)
    assert docker.nodes() == []
    assert not (docker.folder / ".kube").exists()


def test_a_cluster_that_is_not_there_is_a_typed_error(patched_docker: Callable[..., FakeDocker]) -> None:
    """It says what to do; another cluster of kind on the machine is not taken for it."""
    patched_docker()
    with pytest.raises(MachineError, match=r"no kind cluster is up: run `python -m e2e.cluster up`"):
        provider.connect()


def test_a_failure_of_kind_is_reported_in_its_words(
    tmp_path: Path, patched_docker: Callable[..., FakeDocker]
) -> None:
    """The error names the command and what it said."""
    patched_docker("some-other-cluster")
    archive = tmp_path / "image.tar"
    archive.touch()
    with pytest.raises(CommandError, match=rf"unknown node: {CLUSTER}-worker"):
        provider.import_images([archive], hosts=[LAYOUT.hosts[1]])
