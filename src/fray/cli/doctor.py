"""`fray doctor`: looks at what jobs need, here or on a cluster, and says what to do where it isn't there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fray.cli.clusters import open_cluster
from fray.cli.columns import format_columns
from fray.cli.explain import format_manifest
from fray.cli.listing import DataFormat, print_lines
from fray.cli.story import Line, Tone
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import ClusterSpec
from fray.cluster.findings import Finding, Mark
from fray.errors import FrayError
from fray.vocabulary import EXIT_FAILURE

__all__ = ["describe_findings", "diagnose"]

TONES = {Mark.OK: Tone.GOOD, Mark.WRONG: Tone.BAD, Mark.UNKNOWN: Tone.BUSY}


def diagnose(
    spec: ClusterSpec, form: DataFormat | None, *, environ: Mapping[str, str], output: Stream
) -> int:
    """Print what is found, as a table or as data; return 1 if anything is wrong."""
    try:
        with open_cluster(spec, environ=environ) as cluster:
            findings = cluster.examine()
    except FrayError as error:
        # No configuration, or credentials that aren't accepted: nothing else can be asked.
        findings = [Finding("access", Mark.WRONG, error.message, error.next_step)]
    if form is None:
        print_lines(describe_findings(findings), output)
    else:
        output.write(format_manifest({"checks": [_to_data(finding) for finding in findings]}, form))
    return EXIT_FAILURE if any(finding.mark is Mark.WRONG for finding in findings) else 0


def describe_findings(findings: Sequence[Finding]) -> list[Line]:
    """Return a table, with the next step below each line that isn't in order."""
    rows = format_columns([(each.mark, each.subject, each.told) for each in findings])
    lines = []
    for finding, row in zip(findings, rows, strict=True):
        lines.append(Line(row, TONES[finding.mark]))
        if finding.next_step:
            lines.append(Line(f"          {finding.next_step}"))
    wrong = sum(finding.mark is Mark.WRONG for finding in findings)
    unknown = sum(finding.mark is Mark.UNKNOWN for finding in findings)
    summary = f"{wrong} wrong" if wrong else "nothing is wrong"
    if unknown:
        summary += f", {unknown} can't be seen"
    return [*lines, Line(""), Line(summary, Tone.BAD if wrong else Tone.GOOD)]


def _to_data(finding: Finding) -> dict[str, str]:
    data = {"subject": finding.subject, "mark": finding.mark.value, "told": finding.told}
    return data | ({"nextStep": finding.next_step} if finding.next_step else {})
