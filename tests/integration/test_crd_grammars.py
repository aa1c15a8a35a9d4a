"""Names and quantities that Python reads are those that the API server takes, and no others."""

from __future__ import annotations

from typing import Any

from fray.accelerators import generations, legal_gpu_counts, legal_gpu_types, lookup_tpu
from fray.errors import FieldError, InvalidJobError
from fray.wire.quantities import parse_quantity
from fray.wire.validation import validate_manifest
from tests.integration.frayjobs import FrayJobs, causes_of

DRY_RUN = {"dryRun": "All", "fieldValidation": "Strict"}


def is_taken_by_both(frayjobs: FrayJobs, spec: dict[str, Any]) -> bool:
    """Whether a spec is legal; fails if the two judges differ in a path or a text."""
    manifest = {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": "job"},
        "spec": {"entrypoint": {"command": ["true"]}, **spec},
    }
    response = frayjobs.api.request("POST", frayjobs.collection, manifest, query=DRY_RUN)
    problems: tuple[FieldError, ...] = ()
    try:
        validate_manifest(manifest)
    except InvalidJobError as error:
        problems = error.problems
    causes = [] if response.ok else causes_of(response)
    on_server = sorted((cause.path, cause.message) for cause in causes)
    in_python = sorted((problem.path, problem.message) for problem in problems)
    assert [path for path, _ in on_server] == [path for path, _ in in_python], spec
    for (_, said), (_, expected) in zip(on_server, in_python, strict=True):
        assert said.endswith(f": {expected}"), spec
    return response.ok


def two_tpus(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One spec that holds two TPU types, to halve the requests."""
    return {"resources": {"tpu": first}, "workers": {"resources": {"tpu": second}}}


def test_every_legal_tpu_name_is_taken(frayjobs: FrayJobs) -> None:
    names = [
        f"{spelling}-{rest}"
        for generation in generations()
        for spelling in generation.spellings
        for rest in (*generation.sizes, *generation.topologies[:: max(1, len(generation.topologies) // 40)])
    ]
    assert len(names) > 400
    for first, second in zip(names[::2], [*names[1::2], names[0]], strict=False):
        one_host = lookup_tpu(second).hosts == 1
        assert is_taken_by_both(frayjobs, two_tpus({"type": first}, {"type": second})) == one_host


def test_names_near_the_legal_ones_are_refused(frayjobs: FrayJobs) -> None:
    sizes = {str(size) for generation in generations() for size in generation.sizes}
    refused = ["", " v5p-16", "v5p-16 ", "v5p-16\n", "v5p-1 6", "v5p-\N{FULLWIDTH DIGIT FOUR}x4x4"]
    refused += [
        "-",
        "v5p",
        "v5p-",
        "-16",
        "v5p--16",
        "v5p-16-",
        "v5p-4x4x",
        "v5p-x4x4",
        "v5p-4x4x8x8",
        "v5p-0x4x4",
        "v5p-04x4x4",
    ]
    refused += [
        "v5p-4x4x1000",
        "tpu7x-16x24x28",
        "tpu7x-4x4x260",
        "v4-8x16x20",
        "v4-4x4x20",
        "tpu7-4x8x12",
        "v3-2x4",
    ]
    refused += [f"{g.name}-{n}" for g in generations() for n in (2, 3, 12, 100, 20000) if str(n) not in sizes]
    for first, second in zip(refused[::2], [*refused[1::2], refused[0]], strict=False):
        assert not is_taken_by_both(frayjobs, two_tpus({"type": first}, {"type": second}))


def test_topologies_and_hosts_are_judged_against_the_type(frayjobs: FrayJobs) -> None:
    types = [
        "v3-32",
        "v4-16",
        "v4-8192",
        "v5p-16",
        "v5p-128",
        "v5p-4x4x8",
        "v5e-8",
        "v5litedevice-8",
        "v6e-8",
        "v6e-2x4",
        "v6e-1",
        "v6e-4",
        "v4-8",
        "v5p-8",
    ]
    types += ["tpu7-64", "tpu7x-2", "v5p-17", "v5p-", "h100"]
    topologies = [
        "1x1",
        "2x4",
        "4x4",
        "2x2x2",
        "4x4x4",
        "4x4x8",
        "8x4x4",
        "16x16x16",
        "x",
        "4x4x",
        "1x1x1\n",
        "",
    ]
    taken = 0
    for name in types:
        for first, second in zip(topologies[::2], topologies[1::2], strict=True):
            spec = two_tpus({"type": name, "topology": first}, {"type": name, "topology": second})
            taken += is_taken_by_both(frayjobs, spec)
        for chips in (1, 2, 4, 8):
            spec = two_tpus({"type": name, "chipsPerHost": chips}, {"type": name})
            taken += is_taken_by_both(frayjobs, spec)
    assert taken > 10


def test_every_count_of_every_gpu_is_judged_alike(frayjobs: FrayJobs) -> None:
    for name in legal_gpu_types():
        for count in (1, 2, 3, 4, 7, 8, 16):
            taken = is_taken_by_both(frayjobs, {"resources": {"gpu": {"type": name, "count": count}}})
            assert taken == (count in legal_gpu_counts(name))


QUANTITIES = ["", " 1", "1 ", "1\n", "1 Gi", "\N{FULLWIDTH DIGIT ONE}"]
QUANTITIES += [
    "0",
    "1",
    "+1",
    "-1",
    "1.",
    ".1",
    ".",
    "1.5",
    "1.5.5",
    "1_000",
    "0x10",
    "1,5",
    "NaN",
    "inf",
    "1e3",
    "1E3",
    "1e+3",
    "1e-3",
    "1e",
    "1e1.5",
    "e3",
]
QUANTITIES += [
    "1e3Gi",
    "1Gi3",
    "1n1",
    "12345678901234567890",
    "0.0000000001",
    "0.1Ki",
    "1e-20",
    "1.000000001",
]
QUANTITIES += [
    "123456789.123456789",
    "3Ki",
    "3Mi",
    "3Gi",
    "3Ti",
    "3Pi",
    "3Ei",
    "3ki",
    "3K",
    "3mi",
    "3i",
    "3B",
    "3GiB",
    "3Mb",
]
QUANTITIES += [f"{number}{suffix}" for number in ("1", "2.5", "0") for suffix in "numkMGTPE"]


WITHOUT_A_NUMBER = (".", "e3")
"""What Go's scanner reads as zero although the grammar of quantities has no such text."""


def test_quantities_are_judged_alike(frayjobs: FrayJobs) -> None:
    taken = {text: is_taken_by_both(frayjobs, {"resources": {"memory": text}}) for text in QUANTITIES}
    taken |= {str(n): is_taken_by_both(frayjobs, {"resources": {"memory": n}}) for n in (-1, 0, 1, 2**63 - 1)}
    assert sum(taken.values()) > 30
    for text, legal in taken.items():
        if legal:
            assert parse_quantity(text) > 0


def test_quantities_have_the_value_that_kubernetes_gives_them(frayjobs: FrayJobs) -> None:
    # A pod is answered with its quantities in canonical form, which is another spelling of the same.
    collection = f"/api/v1/namespaces/{frayjobs.namespace}/pods"
    read = 0
    for text in QUANTITIES:
        if text != text.strip() or not text:
            continue  # the decoder forgives these, not the grammar
        volume = {"name": "v", "emptyDir": {"sizeLimit": text}}
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
        body = {"metadata": {"name": "x"}, "spec": spec}
        response = frayjobs.api.request("POST", collection, body, query=DRY_RUN)
        if not response.ok:
            continue
        canonical = response.body["spec"]["volumes"][0]["emptyDir"]["sizeLimit"]
        if text in WITHOUT_A_NUMBER:
            assert canonical == "0"
            continue
        assert parse_quantity(text) == parse_quantity(canonical), (text, canonical)
        read += 1
    assert read > 30
