"""Kubernetes quantities, such as `500m` and `32Gi`.

Only the grammar and its value: which ones a field takes stands in `fray.wire.rules`.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, Context, Decimal
from typing import Final

__all__ = ["parse_quantity"]

_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,9})|(?P<decimal>[numkMGTPE]?))",
    re.ASCII,
)
_NANO: Final = Decimal("1e-9")


def parse_quantity(value: int | str) -> Decimal:
    """Return the number that a Kubernetes quantity stands for.

    The grammar is that of `resource.ParseQuantity` in k8s.io/apimachinery: an optional sign, decimal
    digits, and a binary suffix (Ki, Mi, Gi, Ti, Pi, Ei), a decimal one (n, u, m, k, M, G, T, P, E) or an
    exponent (e3, E-3). As there, what is smaller than a nano is rounded away from zero to the next nano.

    Args:
        value: An integer (as YAML reads `cpu: 8`) or the text of a quantity.

    Returns:
        The exact value in base units: cores, bytes or a count. It may be zero or negative.

    Raises:
        ValueError: It is no quantity; the message shows legal ones.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no quantity; legal are, for example, 500m, 8, 1.5, 32Gi or 100M")
    exact = _exact_context(digits=len(match["number"]))
    number = Decimal(match["number"])
    if match["binary"]:
        return _round_to_nano(exact.multiply(number, Decimal(1024 ** _BINARY[match["binary"]])))
    exponent = int(match["exponent"]) if match["exponent"] else _DECIMAL[match["decimal"] or ""]
    return _round_to_nano(exact.scaleb(number, exponent))


def _round_to_nano(number: Decimal) -> Decimal:
    # Only numbers with digits below a nano change; a huge exponent must not be expanded to its digits.
    lowest_digit = number.as_tuple().exponent
    if not isinstance(lowest_digit, int) or lowest_digit >= -9:
        return number
    exact = _exact_context(digits=len(number.as_tuple().digits))
    return exact.quantize(number.copy_abs(), _NANO).copy_sign(number)


def _exact_context(*, digits: int) -> Context:
    # 32 more digits hold the product with 1024^6, and the nanos below a number of any suffix.
    return Context(prec=digits + 32, rounding=ROUND_CEILING, Emax=MAX_EMAX, Emin=MIN_EMIN)
