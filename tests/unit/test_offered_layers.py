"""Import contracts read statements, so each import that `offered_names` does at run time has one."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from types import ModuleType

import grimp
import pytest

from fray import offered_names

GRAPH = grimp.build_graph("fray")
WITHDRAWN = {"fray.device_flops", "fray.iris_backend", "fray.isolated_env", "fray.job_context"}
OFFERING = sorted(GRAPH.find_modules_that_directly_import("fray.offered_names") - {"fray"} - WITHDRAWN)
"""Without `fray` itself, which is no layer, and those that offer only names without a counterpart."""


@pytest.mark.parametrize("package", OFFERING)
def test_each_import_at_run_time_stands_in_a_statement_for_type_checkers(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[str] = set()

    def note(home: str, part: str) -> ModuleType:
        asked.add(home)
        raise AttributeError(part)

    module = import_module(package)
    monkeypatch.setattr(offered_names, "import_home", note)
    monkeypatch.setattr(module, "import_home", note, raising=False)
    names = {name for names in offered_names.HOMES.values() for name in names}
    for name in sorted(names.union(module.__dir__())):
        with suppress(AttributeError):
            module.__getattr__(name)
    assert asked
    above = {home for home in asked if package.startswith(f"{home}.")}
    stated = {home for home in asked if GRAPH.direct_import_exists(importer=package, imported=home)}
    assert asked - above == stated
