"""Which versions of Python and Fray a pool's processes may have beside each other."""

from __future__ import annotations

import pytest

from fray.payload.stamp import Stamp
from fray.runtime.pool.head.membership import describe_difference

HEAD = Stamp("3.13", "3.1", "1.2.0")


@pytest.mark.parametrize(
    ("stamp", "named"),
    [
        (Stamp("3.12", "3.1", "1.2.0"), ("Python 3.12", "3.11", "host a", "same minor version of Python")),
        (Stamp("3.11", "3.1", "1.3.0"), ("Fray 1.3.0", "1.2.0", "same version of Fray")),
    ],
)
def test_a_difference_is_named_with_what_to_do(stamp: Stamp, named: tuple[str, ...]) -> None:
    told = describe_difference(stamp, HEAD, "3.11", "host a")
    assert all(word in told for word in named)


def test_the_heads_own_python_and_everybodys_cloudpickle_do_not_matter() -> None:
    assert describe_difference(Stamp("3.11", "2.2", "1.2.0"), HEAD, "3.11", "host a") == ""
