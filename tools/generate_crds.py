"""Write crds/ from the models and rules in src/fray/wire/ (`make crds`)."""

from __future__ import annotations

from pathlib import Path

from fray import vocabulary
from fray.wire.schema import build_crd, render_crd

CRDS = Path(__file__).parents[1] / "crds"


def main() -> None:
    """Write one file per custom resource and say which changed."""
    path = CRDS / f"{vocabulary.FRAYJOB_PLURAL}.{vocabulary.GROUP}.yaml"
    text = render_crd(build_crd())
    if path.exists() and path.read_text(encoding="utf-8") == text:
        print(f"{path.name}: unchanged")
        return
    CRDS.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"{path.name}: written, {len(text.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
