"""How much memory, disk and CPU a request's numbers and texts mean, and how a FrayJob writes that.

The grammar of a FrayJob (`fray.wire.quantities`) and, beside it, that of Fray's earlier APIs: `4g`, `128m`
and `16GB` are binary units there, in which FrayJobs have no word (`128m` would be a tenth of a byte).
"""

from __future__ import annotations

import re
import warnings
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from fray.errors import InvalidRequestError
from fray.types.checks import show_value
from fray.wire.quantities import parse_quantity

__all__ = ["format_cores", "format_size", "parse_cores", "parse_size", "warn_of_missing_unit"]

_EARLIER: Final = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?(?:(?P<small>[kmgtp])|(?P<any>[kmgtpKMGTP])[iI]?[bB])"
)
_POWERS: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_BINARY: Final = (("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
_DECIMAL: Final = (("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0))
_MIB: Final = 2**20
_MOST_BYTES: Final = 2**63 - 1
"""The largest quantity that Kubernetes keeps exactly."""
_MOST_CORES: Final = 1_000_000
_SIZE_REMEDY: Final = "Write a size such as 4g (GiB), 512m (MiB), 32Gi or 100G (10^9 bytes)."
_CORES_REMEDY: Final = "Write a number of cores above 0, such as 8, 0.5 or 500m."


def parse_size(field: str, value: Any) -> int:
    """Return the bytes that a size means, rounded up.

    Args:
        field: Where it stands, for errors.
        value: Text (`4g`, `512 MB`, `32Gi`, `100G`), or a number of bytes. A number without a unit that
            stands for less than 1 MiB is one of GiB (see `warn_of_missing_unit`): no pod starts with
            16 bytes, and people write `16`.

    Raises:
        InvalidRequestError: It is no size, less than 1 MiB or more than 8 EiB.
    """
    number = _read_size(field, value)
    if number < _MIB and _has_no_unit(value):
        number *= 2**30
    if not _MIB <= number <= _MOST_BYTES:
        raise InvalidRequestError(field, f"is {show_value(value)}; legal are 1 MiB to 8 EiB", _SIZE_REMEDY)
    return int(number.to_integral_value(ROUND_CEILING))


def warn_of_missing_unit(field: str, value: Any, *, stacklevel: int) -> None:
    """Warn if a legal size has no unit and is read as one of GiB for that."""
    if _has_no_unit(value) and _read_size(field, value) < _MIB:
        text = str(value).strip()
        message = f"{field} is {show_value(value)}, without a unit: read as {text} GiB; write '{text}g'"
        warnings.warn(message, stacklevel=stacklevel + 1)


def format_size(size: int) -> str:
    """Return a FrayJob's quantity for a number of bytes, exact and as short as can be: 4Gi, 100G."""
    units = [(suffix, 2**bits) for suffix, bits in _BINARY] + [(suffix, 10**n) for suffix, n in _DECIMAL]
    return min((f"{size // unit}{suffix}" for suffix, unit in units if size % unit == 0), key=len)


def parse_cores(field: str, value: Any) -> Decimal:
    """Return a number of CPU cores, rounded up to thousandths.

    Args:
        field: Where it stands, for errors.
        value: A number, or a FrayJob's quantity: 8, 0.5, "500m".

    Raises:
        InvalidRequestError: It is no such number, or not above 0.
    """
    try:
        cores = parse_quantity(_as_text(value))
    except ValueError as error:
        raise InvalidRequestError(
            field, f"is {show_value(value)}, no number of cores", _CORES_REMEDY
        ) from error
    if not 0 < cores <= _MOST_CORES:
        problem = f"is {show_value(value)}; legal are numbers above 0 and up to {_MOST_CORES}"
        raise InvalidRequestError(field, problem, _CORES_REMEDY)
    return cores.quantize(Decimal("0.001"), ROUND_CEILING)


def format_cores(cores: Decimal) -> str:
    """Return a FrayJob's quantity for a number of cores: 8, 500m."""
    return str(int(cores)) if cores == int(cores) else f"{int(cores * 1000)}m"


def _read_size(field: str, value: Any) -> Decimal:
    """The number that is written, with its unit where it has one."""
    text = _as_text(value)
    earlier = _EARLIER.fullmatch(text)
    if earlier is not None:
        power = _POWERS[(earlier["small"] or earlier["any"]).lower()]
        return Decimal(earlier["number"]) * (1 << 10 * power)
    try:
        return parse_quantity(text)
    except ValueError as error:
        raise InvalidRequestError(field, f"is {show_value(value)}, no size", _SIZE_REMEDY) from error


def _as_text(value: Any) -> str:
    """What may be a quantity as its text; empty, which is none, for what can't be one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return ""
    if isinstance(value, int) and abs(value) >= 10**32:
        return ""  # Python refuses to write integers of thousands of digits
    text = repr(value) if isinstance(value, float) else str(value).strip()
    return text if len(text) <= 32 else ""


def _has_no_unit(value: Any) -> bool:
    return not isinstance(value, str) or value.strip()[-1:] in "0123456789."
