"""Write the manifests of every golden shape anew: `python -m tests.unit.plan.regenerate_golden`.

Read the difference before it is committed: each line is a promise to those whose jobs run on it.
"""

from __future__ import annotations

import sys

from tests.unit.plan.golden import GOLDEN, actor_shapes, render_actor, render_all, shapes


def main() -> None:
    """Write the files and print the names of those that changed."""
    made = {shape: render_all(shape) for shape in shapes()}
    made |= {shape: render_actor(shape) for shape in actor_shapes()}
    for shape, files in made.items():
        for name, text in files.items():
            path = GOLDEN / shape / name
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                sys.stdout.write(f"{path.relative_to(GOLDEN.parents[1])}\n")


if __name__ == "__main__":
    main()
