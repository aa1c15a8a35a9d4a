"""Cluster specs: what they say, that they are written as they are read, and what is no spec."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fray.cluster.cluster_spec import (
    ClusterSpec,
    IrisSpec,
    KubernetesSpec,
    LocalSpec,
    RaySpec,
    check_available,
    format_cluster_spec,
    parse_cluster_spec,
)
from fray.errors import ClusterSpecError, ClusterUnavailableError, RequestError
from tests.bad_specs import BAD_SPECS
from tests.unit.cluster.requests import any_cluster


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local", LocalSpec()),
        (" local ", LocalSpec()),
        ("local?", LocalSpec()),
        ("local?use_isolated_env=true", LocalSpec(use_isolated_env=True)),
        ("local?use_isolated_env=TRUE", LocalSpec(use_isolated_env=True)),
        ("local?use_isolated_env=false&mode=thread", LocalSpec(mode="thread")),
        ("local?mode=process", LocalSpec()),
        ("k8s", KubernetesSpec()),
        ("k8s?namespace=", KubernetesSpec()),
        (
            "k8s?namespace=ml&context=gke_p_us-east5_c&image=gcr.io/p/i:1&queue=tpu&service_account=fray-job"
            "&staging=gs://bucket/a+b%26c",
            KubernetesSpec(
                namespace="ml",
                context="gke_p_us-east5_c",
                image="gcr.io/p/i:1",
                queue="tpu",
                service_account="fray-job",
                staging="gs://bucket/a+b&c",
            ),
        ),
        ("k8s?context=my%20laptop", KubernetesSpec(context="my laptop")),
        ("ray", RaySpec()),
        ("ray?namespace=x", RaySpec(namespace="x")),
        ("ray?cluster=us-east5&address=ray://h:1", RaySpec(cluster="us-east5", address="ray://h:1")),
        ("iris?controller=http://h:1/x", IrisSpec(controller="http://h:1/x")),
    ],
)
def test_what_a_spec_says(text: str, expected: ClusterSpec) -> None:
    assert parse_cluster_spec(text) == expected


@given(any_cluster() | st.just(RaySpec(cluster="x=y&z")) | st.just(IrisSpec(controller="http://h?a=b#c")))
def test_a_spec_is_written_as_it_is_read(spec: ClusterSpec) -> None:
    text = format_cluster_spec(spec)
    assert parse_cluster_spec(text) == spec
    assert str(spec) == text
    assert text.isprintable()
    assert text.isascii()


def test_a_spec_is_written_short() -> None:
    spec = KubernetesSpec(namespace="ml", context="a b", image="gcr.io/p/i:1", staging="gs://b/x?y=a&b")
    assert str(spec) == "k8s?namespace=ml&context=a%20b&image=gcr.io/p/i:1&staging=gs://b/x?y=a%26b"
    assert str(LocalSpec(use_isolated_env=True)) == "local?use_isolated_env=true"
    assert str(KubernetesSpec()) == "k8s"


@pytest.mark.parametrize(("text", "problem", "advice"), BAD_SPECS, ids=[bad[0][:30] for bad in BAD_SPECS])
def test_what_is_no_spec(text: str, problem: str, advice: str) -> None:
    with pytest.raises(ClusterSpecError) as caught:
        parse_cluster_spec(text)
    error = caught.value
    assert problem in error.message
    assert advice in error.next_step
    assert "Unknown cluster spec" in str(error)
    assert isinstance(error, RequestError)
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_keys_that_are_refused_are_not_offered() -> None:
    with pytest.raises(ClusterSpecError) as caught:
        parse_cluster_spec("ray?foo=1")
    assert caught.value.next_step == "Legal keys of ray: address."


def test_what_is_no_text() -> None:
    with pytest.raises(ClusterSpecError, match="not text"):
        parse_cluster_spec(None)  # type: ignore[arg-type]


@given(st.text() | st.text("localk8s?=&%namespcemd", max_size=30))
def test_any_text_is_a_spec_or_a_typed_error(text: str) -> None:
    try:
        spec = parse_cluster_spec(text)
    except ClusterSpecError:
        return
    assert parse_cluster_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("ray?namespace=x", "Write ray\\?address="),
        ("ray?cluster=us-east5", "Write ray\\?address="),
        ("iris?controller=http://h:1", "Use FRAY_CLUSTER_SPEC=local"),
    ],
)
def test_specs_that_can_only_be_read(text: str, advice: str) -> None:
    with pytest.raises(ClusterUnavailableError, match=rf"is not available[^\n]*\n{advice}"):
        check_available(parse_cluster_spec(text))


def test_a_backend_that_cannot_be_used_is_never_proposed() -> None:
    for text in ("iris://h:1", "IRIS", "irsi"):
        with pytest.raises(ClusterSpecError) as caught:
            parse_cluster_spec(text)
        assert "Did you mean 'iris'" not in caught.value.next_step
        assert "local" in caught.value.next_step


@pytest.mark.parametrize("text", ["local", "k8s?namespace=x", "ray?address=http://h:8265"])
def test_backends_that_exist(text: str) -> None:
    check_available(parse_cluster_spec(text))


SECRETIVE = [
    "k8s?staging=s3://AKIA:s3cret@bucket",
    "k8s?staging=s3%3A%2F%2FAKIA%3As3cret%40bucket",
    "k8s?staging=az://box/x?sig=s3cret",
    "k8s?staging=https://s3cret@host/x",
    "ray?address=ray://me:s3cret@host:10001",
    "iris?controller=http://me:s3cret@host",
    # Something else is wrong, and the error shows the whole.
    "k8s?staging=s3://AKIA:s3cret@bucket&namepsace=x",
    "k8s?namespace=ML&staging=s3://AKIA:s3cret@bucket",
    "k8s?namespace=s3://AKIA:s3cret@bucket",
    "k8s?staging=a&staging=s3://AKIA:s3cret@bucket",
    "k8s?s3://AKIA:s3cret@bucket",
    "k8&staging=s3://AKIA:s3cret@bucket",
    "k8s%3Fstaging=s3%3A%2F%2FAKIA%3As3cret%40bucket",
    "s3://AKIA:s3cret@bucket",
]


@pytest.mark.parametrize("text", SECRETIVE)
def test_credentials_are_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ClusterSpecError) as caught:
        parse_cluster_spec(text)
    assert "s3cret" not in f"{caught.value} {caught.value!r} {caught.value.args}"
    assert caught.value.next_step


def test_credentials_are_refused_however_a_spec_is_made() -> None:
    with pytest.raises(ClusterSpecError, match=r"staging holds a password or a token\n.*secrets=") as caught:
        KubernetesSpec(staging="s3://AKIA:s3cret@bucket")
    assert "s3cret" not in f"{caught.value} {caught.value!r}"
    with pytest.raises(ClusterSpecError, match="staging holds"):
        replace(KubernetesSpec(), staging="s3://AKIA:s3cret@bucket")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: KubernetesSpec(namespace="ML"), "namespace is 'ML'"),
        (lambda: KubernetesSpec(namespace=""), "namespace is ''"),
        (lambda: KubernetesSpec(namespace=3), "namespace is of type int"),  # type: ignore[arg-type]
        (lambda: KubernetesSpec(context="a\nb"), "kubeconfig"),
        (lambda: KubernetesSpec(context="\ud800"), "kubeconfig"),
        (lambda: KubernetesSpec(image="a b"), "container image"),
        (lambda: KubernetesSpec(queue="a_b"), "LocalQueue"),
        (lambda: KubernetesSpec(service_account="a" * 254), "ServiceAccount"),
        (lambda: KubernetesSpec(staging="bucket/x"), "gs://"),
        (lambda: LocalSpec(mode="threads"), "Did you mean 'thread'"),  # type: ignore[arg-type]
        (lambda: LocalSpec(use_isolated_env="yes"), "use_isolated_env is of type str"),  # type: ignore[arg-type]
        (lambda: LocalSpec(mode="thread", use_isolated_env=True), "exclude each other"),
        (lambda: RaySpec(address="a b"), "an address"),
        (lambda: IrisSpec(controller="host"), "http://"),
    ],
)
def test_a_spec_that_a_program_makes_is_judged_as_one_that_is_read(
    make: Callable[[], object], told: str
) -> None:
    with pytest.raises(ClusterSpecError, match=told) as caught:
        make()
    assert caught.value.next_step
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
