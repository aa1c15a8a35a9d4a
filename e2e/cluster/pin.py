"""Write `modules/<part>/` again after a version in `versions.toml` changed.

Run by a person, never by a build: a build takes these files as they are and fails if they do not fit.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.toolchain import run_go
from e2e.cluster.versions import Part

__all__ = ["build_module_file", "build_tools_file", "pin"]

_STAGING = re.compile(r"^\s*(?:replace\s+)?(\S+) => \./staging/\S+$", re.MULTILINE)
_LANGUAGE = re.compile(r"^go (\d+\.\d+)", re.MULTILINE)


def build_tools_file(part: Part) -> str:
    """A Go file that imports the part's main packages, so that `go mod tidy` keeps what they need.

    Its build tag is never set: the file is read by tidy and compiled by nobody.
    """
    imports = "\n".join(f'\t_ "{package}"' for package in sorted(p.package for p in part.programs))
    return f"//go:build tools\n\npackage tools\n\nimport (\n{imports}\n)\n"


def build_module_file(part: Part, upstream: str) -> str:
    """A go.mod that requires only the part, before tidy adds what that needs.

    `upstream` is the part's own go.mod: its language version is kept, and so are its `./staging/...`
    replacements, which would otherwise not apply outside of its own repository.
    """
    language = _LANGUAGE.search(upstream)
    lines = [f"module fray.invalid/{part.name}", ""]
    if language is not None:
        lines += [f"go {language[1]}.0", ""]
    lines += [f"require {part.module} {part.version}", ""]
    lines += [f"replace {module} => {module} {part.staging_version}" for module in _STAGING.findall(upstream)]
    return "\n".join(lines) + "\n"


def pin(part: Part, *, progress: Callable[[str], None] = print) -> None:
    """Replace the part's go.mod, go.sum and tools.go by ones for its version; all of them or none.

    Raises GoToolchainError, ModuleProxyError, CompileError.
    """
    doing = f"pinning {part.name} {part.version}"
    progress(doing)
    writable = {"GOFLAGS": "-mod=mod"}
    with tempfile.TemporaryDirectory(prefix="fray-pin-") as name:
        folder = Path(name)
        (folder / "go.mod").write_text("module fray.invalid/pin\n", encoding="utf-8")
        said = run_go(
            ["mod", "download", "-json", f"{part.module}@{part.version}"],
            cwd=folder,
            doing=doing,
            overrides=writable,
        )
        upstream = Path(json.loads(said)["GoMod"]).read_text(encoding="utf-8")
        (folder / "tools.go").write_text(build_tools_file(part), encoding="utf-8")
        (folder / "go.mod").write_text(build_module_file(part, upstream), encoding="utf-8")
        (folder / "go.sum").unlink(missing_ok=True)
        run_go(["mod", "tidy"], cwd=folder, doing=doing, overrides=writable)
        part.folder.mkdir(parents=True, exist_ok=True)
        for file in ("tools.go", "go.mod", "go.sum"):
            (part.folder / file).write_bytes((folder / file).read_bytes())
