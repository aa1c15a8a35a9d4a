"""`fray doctor`: looks at what jobs need, here or on a cluster, and says what to do where it isn't there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fray.cli.clusters import open_cluster
from fray.cli.columns import format_columns
from fray.cli.explain import format_manifest
from fray.cli.listing import DataFormat, print_lines
from fray.cli.story import Line, Tone
from fray.cli.streams import OutputStream
from fray.cluster.answers import CheckResult, Mark
from fray.cluster.cluster_spec import ClusterSpec, KubernetesSpec
from fray.errors import FrayError
from fray.nodepools.examination import examine_gke
from fray.vocabulary import EXIT_FAILURE
from fray.wire.frayjob import FrayJob

__all__ = ["describe_check_results", "diagnose"]

TONES = {Mark.OK: Tone.GOOD, Mark.WRONG: Tone.BAD, Mark.UNKNOWN: Tone.BUSY}


def diagnose(
    spec: ClusterSpec,
    form: DataFormat | None,
    *,
    job: FrayJob | None = None,
    environ: Mapping[str, str],
    output: OutputStream,
) -> int:
    """Print what is found, for a job too, as a table or as data; return 1 if anything is wrong."""
    try:
        with open_cluster(spec, environ=environ) as cluster:
            results = cluster.examine()
    except FrayError as error:
        # No configuration, or credentials that aren't accepted: nothing else can be asked.
        results = [CheckResult("access", Mark.WRONG, error.message, error.next_step)]
    if isinstance(spec, KubernetesSpec):
        results += examine_gke(environ, context=spec.context, job=job)
    elif job is not None:
        found = "processes of this machine run it, whatever nodes it asks for"
        results.append(CheckResult(f"pools for {job.metadata.name}", Mark.OK, found))
    if form is None:
        print_lines(describe_check_results(results), output)
    else:
        output.write(format_manifest({"checks": [_to_data(result) for result in results]}, form))
    return EXIT_FAILURE if any(result.mark is Mark.WRONG for result in results) else 0


def describe_check_results(results: Sequence[CheckResult]) -> list[Line]:
    """Return a table, with the next step below each line that isn't in order."""
    rows = format_columns([(each.mark, each.subject, each.seen) for each in results])
    lines = []
    for result, row in zip(results, rows, strict=True):
        lines.append(Line(row, TONES[result.mark]))
        if result.next_step:
            lines.append(Line(f"          {result.next_step}"))
    wrong = sum(result.mark is Mark.WRONG for result in results)
    unknown = sum(result.mark is Mark.UNKNOWN for result in results)
    summary = f"{wrong} wrong" if wrong else "nothing is wrong"
    if unknown:
        summary += f", {unknown} can't be seen"
    return [*lines, Line(""), Line(summary, Tone.BAD if wrong else Tone.GOOD)]


def _to_data(result: CheckResult) -> dict[str, str]:
    data = {"subject": result.subject, "mark": result.mark.value, "seen": result.seen}
    return data | ({"nextStep": result.next_step} if result.next_step else {})
