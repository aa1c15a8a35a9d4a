"""Write crds/ from the models and rules in src/fray/wire/, and the chart's copy of it (`make crds`)."""

from __future__ import annotations

from pathlib import Path

from fray.wire.schema import build_crd, render_crd
from fray_operator.frayjobs import KINDS

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "crds", ROOT / "charts" / "fray" / "files" / "crds")
"""A chart can only hold files of its own folder; a test compares the copies."""


def main() -> None:
    """Write one file per custom resource and say which changed."""
    for crd in (build_crd(kind.custom) for kind in KINDS):
        text = render_crd(crd)
        for folder in FOLDERS:
            path = folder / f"{crd['metadata']['name']}.yaml"
            shown = path.relative_to(ROOT)
            if path.exists() and path.read_text(encoding="utf-8") == text:
                print(f"{shown}: unchanged")
                continue
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{shown}: written, {len(text.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
