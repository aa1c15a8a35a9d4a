"""What a rule of a custom resource is: a CEL expression beside its Python twin, with one text for both.

The CRD carries the CEL, so that `kubectl apply` refuses what is wrong without any webhook;
`fray.wire.validation` runs the twin, so that `fray run` refuses the same before a cluster is asked.
Which rules there are stands in `fray.wire.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

__all__ = ["Reason", "Rule", "UpdateRule", "cel_string", "cel_strings"]

Value = TypeVar("Value")

Reason = Literal["FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"]
"""The kinds of refusal that `x-kubernetes-validations` knows and that print the rule's own text."""


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[Value]):
    """What must hold of a value: a model, or one of its fields where that is set.

    Attributes:
        cel: The CEL expression; `self` is the value.
        holds: Its twin: True for every value for which the expression is true.
        message: What is legal, shown when the rule is broken. With arguments, a template: %s and %d.
        arguments: What to fill in of the value; None for a message that is always the same.
        arguments_cel: Their twins, as CEL expressions.
        fallback: The text where the filled-in one would hold a line break, which an API server refuses.
        field: The field of the value (camelCase, dotted) that is to blame; the value itself when empty.
        reason: The kind of refusal.
    """

    cel: str
    holds: Callable[[Value], bool]
    message: str
    arguments: Callable[[Value], tuple[str | int, ...]] | None = None
    arguments_cel: tuple[str, ...] = ()
    fallback: str = ""
    field: str = ""
    reason: Reason = "FieldValueInvalid"

    def explain(self, value: Value) -> str:
        """Return the text that the API server shows for a value that breaks the rule."""
        if self.arguments is None:
            return self.message
        text = self.message % self.arguments(value)
        return self.fallback if "\n" in text else text

    @property
    def message_cel(self) -> str:
        """The CEL expression of the text, empty for a message that is always the same.

        One call of `format`, since the API server can't bound the size of anything added to its result.
        """
        if self.arguments is None:
            return ""
        return f"{cel_string(self.message)}.format([{', '.join(self.arguments_cel)}])"


@dataclass(frozen=True, kw_only=True)
class UpdateRule:
    """What must hold between a value and the one that it replaces: only the API server sees both.

    Attributes:
        cel: The CEL expression; `self` is the new value, `oldSelf` the old one.
        message: What is legal.
        field: The field of the value (camelCase) that is to blame; the value itself when empty.
        reason: The kind of refusal.
    """

    cel: str
    message: str
    field: str = ""
    reason: Reason = "FieldValueForbidden"


def cel_string(text: str) -> str:
    """Return a CEL literal of `text`.

    Raises:
        ValueError: `text` has a backslash or a line break, which no rule needs.
    """
    if "\\" in text or "\n" in text:
        raise ValueError(f"no CEL literal for {text!r}: write the rule without backslashes and line breaks")
    return f'"{text}"' if "'" in text and '"' not in text else "'" + text.replace("'", "\\'") + "'"


def cel_strings(texts: tuple[str, ...]) -> str:
    """Return a CEL list of `texts`."""
    return f"[{', '.join(cel_string(text) for text in texts)}]"
