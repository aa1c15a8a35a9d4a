"""Values and handles that tests of the encodings share; the classes are importable, as those of users are."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from fray.payload.values.references import Reference, report_reference


@dataclass
class Point:
    x: object
    y: object = 0


class Ref(Reference):
    """A handle as fray.job has them."""

    def __init__(self, identity: int) -> None:
        self.identity = identity

    @property
    def object_id(self) -> int:
        return self.identity

    def __reduce__(self) -> tuple[object, ...]:
        report_reference(self.identity)
        return read_ref, (self.identity,)


were_read: list[int] = []


def read_ref(identity: int) -> Ref:
    were_read.append(identity)
    return Ref(identity)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | inner.map(Point)
    ),
)
