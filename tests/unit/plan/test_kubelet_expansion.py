"""`$(NAME)` means to a local process what the kubelet makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fray.plan.expansion import (
    UnresolvedReferenceError,
    escape_text,
    expand_arguments,
    expand_environment,
    expand_text,
)

VARIABLES = {"A": "1", "B": "two", "EMPTY": "", "REF": "$(A)", "a.b-c": "odd", "": "nameless"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # From the kubelet's own table (third_party/forked/golang/expansion/expand_test.go).
        ("$(A)", "1"),
        ("foo-$(A)-bar", "foo-1-bar"),
        ("$(A)$(B)", "1two"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$(A", "$(A"),
        ("$$A", "$A"),
        ("$A", "$A"),
        ("$", "$"),
        ("$$", "$"),
        ("$$$", "$$"),
        ("$(", "$("),
        ("$)", "$)"),
        ("f0000-$(A", "f0000-$(A"),
        ("$(foo$$var)", "$(foo$$var)"),
        ("foo$(A)bar$(", "foo1bar$("),
        ("$($(A))", "$($(A))"),
        ("$(REF)", "$(A)"),  # what a variable holds is not expanded again
        ("$(EMPTY)", ""),
        ("$(a.b-c)", "odd"),
        ("$( A)", "$( A)"),
        ("$(A\nB)", "$(A\nB)"),
        ("$()", "nameless"),
        ("${A} $A `A`", "${A} $A `A`"),
        ("$é$(A)", "$é1"),
    ],
)
def test_references(text: str, expected: str) -> None:
    assert expand_text(text, VARIABLES) == expected


def kubelet_expand(text: str, variables: dict[str, str]) -> str:
    """Kubernetes 1.34's `Expand` (third_party/forked/golang/expansion), line by line."""
    out, cursor, checkpoint = "", 0, 0
    while cursor < len(text):
        if text[cursor] == "$" and cursor + 1 < len(text):
            out += text[checkpoint:cursor]
            read, is_variable, advance = _try_read_variable_name(text[cursor + 1 :])
            out += variables.get(read, f"$({read})") if is_variable else read
            cursor += advance
            checkpoint = cursor + 1
        cursor += 1
    return out + text[checkpoint:]


def _try_read_variable_name(text: str) -> tuple[str, bool, int]:
    if text[0] == "$":
        return "$", False, 1
    if text[0] == "(":
        end = text.find(")", 1)
        return (text[1:end], True, end + 1) if end > 0 else ("$(", False, 1)
    return "$" + text[0], False, 1


@settings(max_examples=500, derandomize=True)
@given(text=st.text("$()AB \né", max_size=20))
@example(text="$($$")
@example(text="$$($(A)")
def test_any_text_is_expanded_as_by_the_kubelet(text: str) -> None:
    assert expand_text(text, VARIABLES) == kubelet_expand(text, VARIABLES)


def test_arguments_are_expanded_each_by_itself() -> None:
    assert expand_arguments(["train", "--rank=$(A)", "$", "(B)", "$(B)"], VARIABLES) == [
        "train",
        "--rank=1",
        "$",
        "(B)",
        "two",
    ]


# --- environments --------------------------------------------------------------------------------------

FIELDS = {"metadata.name": "train-0", "job-index": "3", "shared": "label"}


def label(name: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}}


def test_a_variable_may_refer_to_earlier_ones_only() -> None:
    entries = [
        {"name": "LATE", "value": "$(FIRST)"},
        {"name": "FIRST", "value": "1"},
        {"name": "SECOND", "value": "$(FIRST)2"},
        {"name": "THIRD", "value": "$(SECOND)3 $$(SECOND)"},
    ]
    assert expand_environment(entries, {}) == {
        "LATE": "$(FIRST)",
        "FIRST": "1",
        "SECOND": "12",
        "THIRD": "123 $(SECOND)",
    }


def test_a_variable_may_refer_to_its_own_earlier_value() -> None:
    entries = [{"name": "PATH", "value": "/bin"}, {"name": "PATH", "value": "/opt:$(PATH)"}]
    assert expand_environment(entries, {}) == {"PATH": "/opt:/bin"}


def test_labels_and_fields_of_the_pod_are_resolved_and_not_expanded_again() -> None:
    entries = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        label("INDEX", "job-index"),
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['shared']"}}},
        {"name": "HOST", "value": "$(NAME)-$(INDEX)"},
    ]
    assert expand_environment(entries, FIELDS | {"metadata.name": "$(INDEX)"}) == {
        "NAME": "$(INDEX)",
        "INDEX": "3",
        "A": "label",
        "HOST": "$(INDEX)-3",
    }


def test_inherited_variables_can_be_referred_to_and_overridden() -> None:
    entries = [{"name": "A", "value": "$(A)+"}, {"name": "B", "value": "$(A)"}]
    found = expand_environment(entries, {}, inherited={"A": "secret", "C": "kept"})
    assert found == {"A": "secret+", "B": "secret+", "C": "kept"}


def test_a_label_that_the_pod_does_not_have_is_empty() -> None:
    assert expand_environment([label("X", "nobody.has/it")], FIELDS) == {"X": ""}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"name": "X"}, ""),
        ({"name": "X", "value": ""}, ""),
        ({"name": "X", "value": None}, ""),
        ({"name": "X", "value": "v", "valueFrom": None}, "v"),
        ({"name": "X", "value": None, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, "train-0"),
        ({"name": "X", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, "train-0"),
        ({"name": "X", "value": "wins", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, "wins"),
    ],
)
def test_a_value_that_is_not_empty_wins_over_its_source(entry: dict[str, Any], expected: str) -> None:
    assert expand_environment([entry], FIELDS) == {"X": expected}


@pytest.mark.parametrize(
    "source",
    [
        {"secretKeyRef": {"name": "hub", "key": "token"}},
        {"configMapKeyRef": {"name": "ports", "key": "torch"}},
        {"resourceFieldRef": {"resource": "limits.memory"}},
        {"fieldRef": {"fieldPath": "spec.nodeName"}},
        {"fieldRef": {}},
    ],
)
def test_what_is_not_known_here_is_a_typed_error_that_names_it(source: dict[str, Any]) -> None:
    with pytest.raises(UnresolvedReferenceError) as error:
        expand_environment([{"name": "TOKEN", "valueFrom": source}], FIELDS)
    name, what = error.value.args
    assert name == "TOKEN"
    assert next(iter(source)) in what


@given(text=st.text() | st.text("$()A{} ", max_size=12))
@example(text="$$$(A)$")
def test_an_escaped_text_expands_to_itself(text: str) -> None:
    assert expand_text(escape_text(text), VARIABLES) == text


def test_only_what_means_something_is_escaped() -> None:
    assert escape_text("${A} $A $") == "${A} $A $"
