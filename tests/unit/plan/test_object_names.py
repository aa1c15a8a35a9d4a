"""Names of the objects made for a job: always legal, always the same, never another job's."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fray.plan.gang import Gang, GangKind, derive_gang
from fray.plan.names import (
    MAX_ENV_VALUE,
    build_cluster_addresses,
    build_jobset_name,
    build_object_name,
    jobset_name_limit,
)
from fray.testing import build_frayjob
from fray.wire.frayjob import FrayJob
from tests.unit.plan.frayjobs import any_job, job_names
from tests.unit.plan.jobset_rules import DNS_1035

DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
ONE_HOST = Gang(GangKind.CPU, slices=1, hosts_per_slice=1)
ATTEMPTS = st.integers(1, 2_000_001)


def gang(tpu: str, replicas: int = 1) -> Gang:
    return derive_gang(build_frayjob(replicas=replicas, resources={"tpu": {"type": tpu}}).spec)


GANGS = st.one_of(
    st.builds(
        Gang,
        st.just(GangKind.CPU),
        slices=st.just(1),
        hosts_per_slice=st.sampled_from([1, 2, 10, 11, 100, 9999, 10000]),
    ),
    st.builds(gang, st.sampled_from(["v6e-1", "v5p-16", "v5p-12288", "tpu7x-18432"]), st.integers(1, 10000)),
)

# --- JobSets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "attempt", "shape", "expected"),
    [
        ("train", 1, ONE_HOST, "train-a1"),
        ("train", 12, ONE_HOST, "train-a12"),
        ("x", 1, ONE_HOST, "x-a1"),
        ("7b-model", 1, ONE_HOST, "j7b-model-9ecb8d18-a1"),
        # 47 characters fit (proven against JobSet's webhook), one more does not.
        ("a" * 44, 1, ONE_HOST, "a" * 44 + "-a1"),
        ("a" * 45, 1, ONE_HOST, "a" * 35 + "-52789e34-a1"),
        # A cut that would end in a dash loses it.
        ("a" * 34 + "-" + "b" * 20, 1, ONE_HOST, "a" * 34 + "-b97bbc1c-a1"),
    ],
)
def test_jobset_names(name: str, attempt: int, shape: Gang, expected: str) -> None:
    assert build_jobset_name(name, attempt=attempt, gang=shape) == expected


@pytest.mark.parametrize(
    ("shape", "limit"),
    [
        (ONE_HOST, 47),  # 63 - 9 - len("slice") - 1 - 1
        (Gang(GangKind.CPU, slices=1, hosts_per_slice=10), 47),
        (Gang(GangKind.CPU, slices=1, hosts_per_slice=11), 46),
        (gang("v6e-1", 10000), 44),
        (gang("v5p-16", 96), 46),
        (gang("v5p-12288"), 29),  # 1536 host names within one environment string
        (gang("tpu7x-18432"), 16),
    ],
)
def test_how_long_a_jobset_name_may_be(shape: Gang, limit: int) -> None:
    assert jobset_name_limit(shape) == limit


@settings(max_examples=300, derandomize=True)
@given(name=job_names(), attempt=ATTEMPTS, shape=GANGS)
@example(name="a" * 63, attempt=2_000_001, shape=gang("tpu7x-18432", 10000))
@example(name="0", attempt=1, shape=gang("tpu7x-18432"))
def test_every_job_has_legal_children_within_the_limit(name: str, attempt: int, shape: Gang) -> None:
    jobset = build_jobset_name(name, attempt=attempt, gang=shape)
    assert DNS_1035.fullmatch(jobset)
    assert len(jobset) <= jobset_name_limit(shape)
    pod = f"{jobset}-slice-{shape.slices - 1}-{shape.hosts_per_slice - 1}-abcde"
    assert DNS_1035.fullmatch(pod), "the kubelet and DNS want pods' names within 63 characters"
    assert jobset.endswith(f"-a{attempt}"), "an engineer sees which attempt it is"
    assert jobset == build_jobset_name(name, attempt=attempt, gang=shape)


@settings(max_examples=200, derandomize=True)
@given(one=job_names(), other=job_names(), attempts=st.tuples(ATTEMPTS, ATTEMPTS), shape=GANGS)
def test_different_jobs_and_attempts_have_different_jobsets(
    one: str, other: str, attempts: tuple[int, int], shape: Gang
) -> None:
    names = {
        build_jobset_name(job, attempt=attempt, gang=shape)
        for job in {one, other}
        for attempt in set(attempts)
    }
    assert len(names) == len({one, other}) * len(set(attempts))


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (1, "trai-fbf7f901-a1"),
        (1000, "t-fbf7f901-a1000"),
        (10000, "jfbf7f901-a10000"),
        (1_000_000, "jfbf7f9-a1000000"),
    ],
)
def test_a_name_shrinks_as_far_as_the_largest_gangs_demand(attempt: int, expected: str) -> None:
    name = build_jobset_name("train-lm-of-ours", attempt=attempt, gang=gang("tpu7x-18432"))
    assert name == expected
    assert len(name) == 16


@pytest.mark.parametrize("length", [43, 44, 45, 46, 63])
def test_long_names_that_differ_only_at_their_end_stay_apart(length: int) -> None:
    names = {build_jobset_name("a" * length + end, attempt=1, gang=ONE_HOST) for end in "bcd"}
    assert len(names) == 3


@pytest.mark.parametrize("tpu", ["v5p-12288", "tpu7x-18432", "v4-8192", "v5p-256"])
@pytest.mark.parametrize("replicas", [1, 10, 10000])
def test_the_list_of_a_slices_hosts_fits_one_environment_string(tpu: str, replicas: int) -> None:
    shape = gang(tpu, replicas)
    addresses = build_cluster_addresses(build_jobset_name("a" * 63, attempt=1, gang=shape))
    last = shape.slices - 1
    hosts = [addresses.host(slice_index=last, host=h) for h in range(shape.hosts_per_slice)]
    with_ports = ",".join(f"{host}:8471" for host in hosts)
    assert len(with_ports) <= MAX_ENV_VALUE < 131072, "Linux's MAX_ARG_STRLEN"


# --- FrayJobs from names that are none -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "expected"),
    [
        # Digests: printf NAME | sha256sum.
        ("train", "train"),
        ("7b-model", "7b-model"),
        ("a" * 63, "a" * 63),
        ("train_lm", "train-lm-ab1d4b91"),
        ("Train", "train-e99c90db"),
        ("a" * 64, "a" * 54 + "-ffe054fe"),
        ("-a-", "a-a75a468f"),
        ("", "job-e3b0c442"),
        ("___", "job-bda25155"),
        ("ä", "job-33e6d73f"),
        ("train\n", "train-f6e12a5f"),
    ],
)
def test_object_names(original: str, expected: str) -> None:
    assert build_object_name(original) == expected


@settings(max_examples=300, derandomize=True)
@given(original=st.text(st.characters(codec=None), max_size=200))  # any string of Python, lone surrogates too
@example(original="\udcff.py")
def test_any_text_becomes_a_legal_name(original: str) -> None:
    name = build_object_name(original)
    assert DNS_1123.fullmatch(name)
    assert build_object_name(name) == name, "a name that is legal stays as it is"


@settings(max_examples=300, derandomize=True)
@given(one=st.text("aA_-. ", max_size=6), other=st.text("aA_-. ", max_size=6))
def test_different_texts_become_different_names(one: str, other: str) -> None:
    assert (build_object_name(one) == build_object_name(other)) == (one == other)


@settings(max_examples=50, derandomize=True)
@given(job=any_job())
def test_ranks_are_numbered_slice_by_slice_without_gaps(job: FrayJob) -> None:
    shape = derive_gang(job.spec)
    assume(shape.hosts <= 5000)
    ranks = [
        shape.rank(slice_index=index, host=host)
        for index in range(shape.slices)
        for host in range(shape.hosts_per_slice)
    ]
    assert ranks == list(range(shape.hosts))
