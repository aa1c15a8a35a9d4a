"""Queues of Kueue for the jobs of one test, made as an administrator makes them and removed with the test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from e2e.cluster.kueue import NAMESPACE_LABEL
from e2e.job_namespace import JobNamespace

__all__ = ["QueueMaker", "open_queue_maker"]

_API = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class QueueMaker:
    """Makes queues for the jobs of a namespace; what belongs to no namespace is named after that one."""

    jobs: JobNamespace

    def make(
        self,
        name: str,
        quota: Mapping[str, int],
        *,
        nodes: Mapping[str, str] | None = None,
        levels: Sequence[str] = (),
    ) -> None:
        """Make a queue of jobs that may hold so much at once, on the nodes with these labels.

        Jobs of higher priority preempt those of a lower one. `levels` are those of a topology, widest first.
        """
        flavor: dict[str, Any] = {"nodeLabels": dict(nodes or {})}
        if levels:
            topology = {"levels": [{"nodeLabel": level} for level in levels]}
            self.jobs.kubectl.apply(self._build("Topology", self._shared_name, topology))
            flavor["topologyName"] = self._shared_name
        resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
        group = {
            "coveredResources": list(quota),
            "flavors": [{"name": self._shared_name, "resources": resources}],
        }
        self.jobs.kubectl.apply(
            self._build("ResourceFlavor", self._shared_name, flavor),
            self._build(
                "ClusterQueue",
                self._shared_name,
                {
                    "namespaceSelector": {},
                    "resourceGroups": [group],
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                },
            ),
            self._build("LocalQueue", name, {"clusterQueue": self._shared_name}),
        )

    def make_priority(self, value: int) -> str:
        """Make a priority; returns its name."""
        body = self._build("WorkloadPriorityClass", self._shared_name, {})
        del body["spec"]
        self.jobs.kubectl.apply({**body, "value": value, "description": "of a test"})
        return self._shared_name

    def admitted(self) -> set[str]:
        """Names of the JobSets that hold quota."""
        workloads = self.jobs.kubectl.items("workloads.kueue.x-k8s.io")
        return {
            owner["name"]
            for workload in workloads
            for owner in workload["metadata"]["ownerReferences"]
            if _holds(workload, "QuotaReserved") and not _holds(workload, "Finished")
        }

    def remove(self) -> None:
        """Remove what belongs to no namespace."""
        kinds = "clusterqueues,resourceflavors,topologies,workloadpriorityclasses"
        selector = f"--selector={NAMESPACE_LABEL}={self.jobs.name}"
        # Kueue lets a ClusterQueue go once nothing holds quota of it, and then its flavor.
        self.jobs.kubectl.remove(kinds, selector)

    @property
    def _shared_name(self) -> str:
        return self.jobs.name

    def _build(self, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        labels = {NAMESPACE_LABEL: self.jobs.name}
        return {
            "apiVersion": _API,
            "kind": kind,
            "metadata": {"name": name, "labels": labels},
            "spec": dict(spec),
        }


@contextmanager
def open_queue_maker(jobs: JobNamespace) -> Iterator[QueueMaker]:
    """Give a namespace to Kueue, for the length of a `with` block, in which its jobs end."""
    jobs.kubectl("label", "namespace", jobs.name, f"{NAMESPACE_LABEL}=true")
    maker = QueueMaker(jobs)
    try:
        yield maker
    finally:
        jobs.kubectl.remove("frayjobs", "--all")
        maker.remove()


def _holds(workload: Mapping[str, Any], kind: str) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)
