"""`fray run` on a cluster: a job is launched, shown until its end, and its exit code is the command's.

The job is the cluster's: when this process ends before it, whatever ends the process, the job runs on.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fray.cli.cluster_display import follow_job
from fray.cli.exit_codes import derive_exit_code
from fray.cli.kubernetes_backend import patience
from fray.cli.screen import open_screen
from fray.cli.streams import Stream
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.cluster import KubernetesCluster
from fray.cluster.kubernetes.whole_jobs import KubernetesJobs, fill_in
from fray.cluster.manifest import find_parent
from fray.errors import FieldError, InvalidJobError
from fray.kube.api import Manifest
from fray.types import JobId, JobRequest, LogLine
from fray.vocabulary import EXIT_BROKEN_PIPE, EXIT_FAILURE, EXIT_INTERRUPTED
from fray.wire.frayjob import FrayJob

__all__ = ["ClusterRun", "place_in_namespace"]


class ClusterRun:
    """A run on one cluster. With `detach` it ends once the job is launched."""

    def __init__(
        self,
        spec: KubernetesSpec,
        *,
        environ: Mapping[str, str],
        output: Stream,
        notes: Stream,
        detach: bool = False,
    ) -> None:
        self._spec, self._environ = spec, environ
        self._output, self._notes, self._detach = output, notes, detach

    def run_request(self, request: JobRequest, *, own_name: bool) -> int:
        """Run a request and return the exit code.

        With `own_name` a job of its name that lives is an error; else the name was made up, and the job
        gets another one.

        Raises:
            RequestError: It can't be run as it is.
            SurroundingsError: The cluster doesn't let it.
        """
        jobs = self._open(self._spec)
        with patience(self._notes, self._spec):
            name = jobs.cluster.launch(request, when_taken="refuse" if own_name else "rename")
        return self._show(jobs, name)

    def run_manifest(self, job: FrayJob, manifest: Manifest, others: tuple[str, ...]) -> int:
        """Run the job of a file and return the exit code; `others` are the file's other objects.

        Raises:
            RequestError: It can't be run as it is, or a job of its name lives.
            SurroundingsError: The cluster doesn't let it.
        """
        spec = place_in_namespace(self._spec, job)
        for other in others:
            self._notes.write(f"{other} in the same file: left out; `kubectl apply` makes it\n")
        jobs = self._open(spec)
        with patience(self._notes, spec):
            name = jobs.submit(fill_in(manifest, spec, parent=find_parent(self._environ)))
        return self._show(jobs, name)

    def _open(self, spec: KubernetesSpec) -> KubernetesJobs:
        return KubernetesJobs(KubernetesCluster(spec, environ=self._environ))

    def _show(self, jobs: KubernetesJobs, name: JobId) -> int:
        try:
            self._notes.write(f"{name}: created in {jobs.place}\n")
            if self._detach:
                return 0
            terminal, color = self._output.is_terminal, self._output.has_color
            screen = open_screen(self._output, self._notes)
            job = follow_job(_Source(jobs, name), screen, terminal=terminal, color=color)
        except KeyboardInterrupt:
            commands = f"`fray logs -f {name}` shows it, `fray stop {name}` ends it"
            self._notes.write(f"\n{name} runs on: {commands}\n")
            return EXIT_INTERRUPTED
        except OSError as lost:
            # Nobody reads any more (a terminal that was closed answers EIO), or the disk is full.
            self._notes.write(f"{name} runs on; its output can't be shown: {lost.strerror}\n")
            return EXIT_BROKEN_PIPE if lost.errno in (errno.EPIPE, errno.EIO) else EXIT_FAILURE
        return derive_exit_code(job.status)


class _Source:
    """One job of a cluster, to be followed."""

    def __init__(self, jobs: KubernetesJobs, name: JobId) -> None:
        self._jobs, self._name = jobs, name

    def changes(self) -> Iterator[FrayJob]:
        return self._jobs.follow(self._name)

    def lines(self) -> Iterator[LogLine]:
        return self._jobs.cluster.logs(self._name, follow=True)


def place_in_namespace(spec: KubernetesSpec, job: FrayJob) -> KubernetesSpec:
    """Return the spec with the namespace that a job's file names, which `-n` must not contradict.

    Raises:
        InvalidJobError: It does.
    """
    own = job.metadata.namespace
    if own is None or own == spec.namespace:
        return spec
    if spec.namespace is not None:
        problem = f"is {own!r}, and the command line or FRAY_CLUSTER_SPEC says {spec.namespace!r}"
        raise InvalidJobError(job.metadata.name, (FieldError("metadata.namespace", problem),))
    return replace(spec, namespace=own)
