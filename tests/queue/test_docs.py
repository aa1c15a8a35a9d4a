"""What the page about queues shows, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text(encoding="utf-8")


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "docs/queues.md", "exec"), {})
    assert capsys.readouterr().out == "{'shard': 1}\n"
