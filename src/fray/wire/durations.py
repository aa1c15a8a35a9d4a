"""Durations as a FrayJob writes them (`90s`, `30m`, `24h`, `1h30m`), in whole seconds.

Only the grammar and its value: which field takes one, and the rule that refuses the rest at apply,
stands in `fray.wire.rules`, which uses the same pattern.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["DURATION_PATTERN", "parse_duration"]

DURATION_PATTERN: Final = "^([0-9]{1,7}h)?([0-9]{1,7}m)?([0-9]{1,7}s)?$"
"""Hours, minutes and seconds in this order. Valid in RE2 (CEL) and in Python.

Seven digits (more than a thousand years) keep the sum within 64-bit seconds and Python's calendar.
"""


def parse_duration(text: str) -> int:
    """Return the seconds that a duration such as 1h30m stands for.

    Args:
        text: Whole hours, minutes and seconds in this order, each at most once and at least one of
            them more than zero: `90s`, `30m`, `24h`, `1h30m`.

    Returns:
        Seconds, at least 1.

    Raises:
        ValueError: It is no duration, or zero; the message shows legal ones.
    """
    # \Z, not $: in Python $ also matches before a final newline, which RE2 refuses.
    match = re.match(DURATION_PATTERN[:-1] + r"\Z", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is no duration; legal are, for example, 90s, 30m, 24h or 1h30m")
    hours, minutes, seconds = (int(group[:-1]) if group else 0 for group in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total == 0:
        raise ValueError(f"duration {text!r} must be more than zero, such as 90s, 30m, 24h or 1h30m")
    return total
