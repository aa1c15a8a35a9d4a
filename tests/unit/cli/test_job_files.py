"""Job files are read as kubectl reads them; what can't be read says where and why."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from fray.errors import JobFileError
from fray.jobfile import parse_job_file, read_job_file

GPU_NAMES = ("H100", "h100-80GB", "nvidia-h100-80gb")
HEAD = "apiVersion: fray.dev/v1alpha1\nkind: FrayJob\nmetadata: {name: a}\n"
NOTHING = io.BytesIO()


def value_of(text: str) -> Any:
    """Return what a plain scalar in a job file becomes."""
    return parse_job_file(f"{HEAD}x: {text}\n".encode(), name="job.yaml").manifest["x"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # as Go's yaml.v2 resolves them
        ("yes", True),
        ("No", False),
        ("on", True),
        ("OFF", False),
        ("y", True),
        ("N", False),
        ("true", True),
        ("yEs", "yEs"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("1:30", "1:30"),
        ("22:22:22", "22:22:22"),
        ("010", 8),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("-0x10", -16),
        ("1_000", 1000),
        ("08", 8.0),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        (".5", 0.5),
        ("+3", 3),
        ("1.2.3", "1.2.3"),
        ("500m", "500m"),
        ("~", None),
        ("", None),
        ("Null", None),
        ('"yes"', "yes"),
        ("'1e3'", "1e3"),
        ("!!str 5", "5"),
        ("=", "="),
        ("v5p-16", "v5p-16"),
        ("12345678901234567890", 12345678901234567890),
    ],
)
def test_plain_scalars_become_what_kubectl_makes_of_them(text: str, value: object) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


def test_keys_become_text_as_in_json() -> None:
    assert value_of("{1: a, yes: b, 1.5: c, plain: d}") == {"1": "a", "true": "b", "1.5": "c", "plain": "d"}


def test_anchors_aliases_and_merges_are_followed() -> None:
    text = f"{HEAD}base: &b {{a: 1, b: 2}}\nmerged: {{<<: *b, b: 3}}\nagain: *b\n"
    manifest = parse_job_file(text.encode(), name="f").manifest
    assert manifest["merged"] == {"a": 1, "b": 3}
    assert manifest["again"] == {"a": 1, "b": 2}
    assert manifest["again"] is not manifest["base"]


def test_json_is_read_too_also_with_tabs_and_a_byte_order_mark() -> None:
    manifest = {"kind": "FrayJob", "metadata": {"name": "a"}}
    content = b"\xef\xbb\xbf" + json.dumps(manifest, indent="\t").encode()
    assert parse_job_file(content, name="f").manifest == manifest


def test_a_flow_mapping_is_yaml() -> None:
    assert parse_job_file(b"{kind: FrayJob, metadata: {name: a}}", name="f").manifest["kind"] == "FrayJob"


def test_other_objects_beside_the_job_are_named() -> None:
    text = f"kind: Secret\nmetadata: {{name: s}}\n---\n{HEAD}---\n---\nkind: ConfigMap\n"
    file = parse_job_file(text.encode(), name="f")
    assert file.manifest["metadata"] == {"name": "a"}
    assert file.others == ("Secret/s", "ConfigMap/?")


def test_a_job_within_a_list_is_found() -> None:
    content = json.dumps({"kind": "List", "items": [{"kind": "FrayJob"}, {"kind": "Secret"}]}).encode()
    assert parse_job_file(content, name="f").others == ("Secret/?",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds no object of kind FrayJob; it is empty"),
        (b"---\n---\n", "it is empty"),
        (b"# only a comment\n", "it is empty"),
        (
            b"kind: Pod\nmetadata: {name: p}\n",
            "kind FrayJob; it holds Pod/p, for `kubectl apply`",
        ),
        (b"kind: frayjob\n", "it holds frayjob/?"),
        (b"metadata: {}\n", "an object without kind/?"),
        (b"kind: 7\n", "it holds 7/?"),
        (HEAD.encode() + b"---\n" + HEAD.encode(), "holds 2 FrayJobs (FrayJob/a, FrayJob/a)"),
        (b"- kind: FrayJob\n", "document 1 is a list, not a mapping"),
        (b"just text\n", "document 1 is text"),
        (b"42\n", "document 1 is a number"),
        (b"yes\n", "document 1 is a boolean"),
        (b"kind: List\nitems: [7]\n", "document 1 is a number"),
        (b"kind: List\n", "it is empty"),
        (b"kind: FrayJob\nkind: FrayJob\n", "line 2, column 1: key 'kind' is given twice"),
        (b"kind: FrayJob\nspec: {a: 1, a: 2}\n", "key 'a' is given twice"),
        (b"1: a\n'1': b\n", "key '1' is given twice"),
        (b'{"kind": "FrayJob", "kind": "Pod"}', "key 'kind' is given twice"),
        (b"kind: FrayJob\n\tspec: 1\n", "is no valid YAML: line 2, column 1"),
        (b"kind: [FrayJob\n", "is no valid YAML"),
        (b"kind: 'FrayJob\n", "is no valid YAML"),
        (b"kind: *unknown\n", "found undefined alias"),
        (b"kind: !!python/object:os.system x\n", "could not determine a constructor"),
        (b"kind: !secret x\n", "could not determine a constructor"),
        (b"kind: FrayJob\nx: !!int abc\n", "invalid literal"),
        (b"kind: FrayJob\nx: !!binary aGk=\n", "holds a bytes"),
        (b"kind: FrayJob\nx: !!set {a}\n", "holds a set"),
        (b"kind: FrayJob\nx: .nan\n", "holds the number nan"),
        (b"kind: FrayJob\nx: -.inf\n", "holds the number -inf"),
        (b"? [a, b]\n: c\n", "a key must be text"),
        (b"~: a\n", "a key must be text"),
        (b"a: &a [*a]\n", "recursive"),
        (b"a: " + b"[" * 2000, "nested too deeply"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b"kind: FrayJob\nx: \x00\n", "is no valid YAML"),
        (b"kind: caf\xe9\n", "is not UTF-8 text (byte 9)"),
        ("kind: FrayJob\n".encode("utf-16"), "is not UTF-8 text"),
        (b"kind: FrayJob\n...\ngarbage: [\n", "is no valid YAML"),
    ],
)
def test_what_is_no_job_file_says_where_and_why(content: bytes, problem: str) -> None:
    with pytest.raises(JobFileError) as caught:
        parse_job_file(content, name="job.yaml")
    assert str(caught.value).startswith("job.yaml: ")
    assert problem in str(caught.value)


def test_aliases_cannot_blow_up_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(JobFileError, match="aliases stand for more than"):
        parse_job_file("\n".join(lines).encode(), name="f")


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(HEAD)
    assert read_job_file(str(path), stdin=NOTHING).manifest["kind"] == "FrayJob"


def test_a_dash_is_standard_input() -> None:
    assert read_job_file("-", stdin=io.BytesIO(HEAD.encode())).manifest["kind"] == "FrayJob"
    with pytest.raises(JobFileError, match="standard input: holds no"):
        read_job_file("-", stdin=NOTHING)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "directory"), ("a\0b", "null byte")):
        with pytest.raises(JobFileError, match=why):
            read_job_file(str(path), stdin=NOTHING)


def test_a_file_larger_than_any_request_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(HEAD.encode() + b"#" * (3 * 1024 * 1024))
    with pytest.raises(JobFileError, match="larger than 3 MiB"):
        read_job_file(str(path), stdin=NOTHING)


@pytest.mark.parametrize("name", GPU_NAMES)
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_gpus_may_be_named_as_on_the_command_line(name: str, form: str) -> None:
    gpu = {"gpu": {"type": name, "count": 8}}
    spec = {"resources": gpu, "workers": {"resources": gpu}}
    text = json.dumps({"kind": "FrayJob", "spec": spec})
    found = parse_job_file((text if form == "json" else f"---\n{text}").encode(), name="job").manifest["spec"]
    assert found["resources"]["gpu"] == {"type": "nvidia-h100-80gb", "count": 8}
    assert found["workers"]["resources"] == found["resources"]


@pytest.mark.parametrize("gpu", ["5", "{type: 5}", "{type: H1000}", "[]", "{}"])
def test_other_gpus_are_left_to_validation(gpu: str) -> None:
    found = parse_job_file(f"{HEAD}spec: {{resources: {{gpu: {gpu}}}}}\n".encode(), name="job").manifest
    without = parse_job_file(f"{HEAD}x: {gpu}\n".encode(), name="job").manifest
    assert found["spec"]["resources"]["gpu"] == without["x"]
