"""What a real cluster refuses of a JobSet, as far as the plan could get it wrong.

`find_violations` transcribes JobSet 0.12's webhook (pkg/webhooks/jobset_webhook.go), the API server's
validation of a Job's template (pkg/apis/batch and pkg/apis/core/validation) and what the kubelet and Linux
demand of an environment. It shares no code with `fray.plan`: it is the second opinion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["find_violations", "main_container", "pod_template", "references_of"]

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
MAX_ARG_STRLEN = 131072
VOLUME_SOURCES_PER_VOLUME = 1

Manifest = dict[str, Any]


def pod_template(jobset: Manifest) -> Manifest:
    """Return the pod template of the only replicated job."""
    (replicated_job,) = jobset["spec"]["replicatedJobs"]
    template: Manifest = replicated_job["template"]["spec"]["template"]
    return template


def main_container(jobset: Manifest) -> Manifest:
    """Return the container that runs the job."""
    (container,) = (c for c in pod_template(jobset)["spec"]["containers"] if c["name"] == "main")
    assert isinstance(container, dict)
    return container


def references_of(text: str) -> list[str]:
    """Return the names of all `$(NAME)` that the kubelet would look up in a value."""
    return [name for escaped, name in re.findall(r"(\$\$)|\$\(([^)]*)\)", text) if not escaped]


def find_violations(jobset: Manifest) -> list[str]:
    """Return a sentence for each thing that would be refused or go wrong; none for a good JobSet."""
    return [*_webhook(jobset), *_job(jobset), *_pod(jobset), *_environment(jobset)]


def _webhook(jobset: Manifest) -> Iterator[str]:
    name, spec = jobset["metadata"]["name"], jobset["spec"]
    if not DNS_1035.fullmatch(name):
        yield f"name {name!r} is no DNS-1035 label"
    if spec["network"]["subdomain"] != name:
        yield "JAX expects the subdomain to be the JobSet's name"
    for rule in spec["failurePolicy"].get("rules", []):
        if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"]):
            yield f"rule name {rule['name']!r}"
    names = [job["name"] for job in spec["replicatedJobs"]]
    if len(set(names)) != len(names):
        yield "replicated jobs share a name"
    for target in spec["successPolicy"]["targetReplicatedJobs"]:
        if target not in names:
            yield f"success policy targets {target!r}"
    for replicated_job in spec["replicatedJobs"]:
        job, replicas = replicated_job["template"]["spec"], replicated_job["replicas"]
        if replicas < 1 or replicas * job["parallelism"] > 2**31 - 1:
            yield f"{replicas} replicas of {job['parallelism']} pods"
        longest_job = f"{name}-{replicated_job['name']}-{replicas - 1}"
        longest_pod = f"{longest_job}-{job['completions'] - 1}-abcde"
        yield from (
            f"{n!r} is too long or wrong" for n in (longest_job, longest_pod) if not DNS_1035.fullmatch(n)
        )


def _job(jobset: Manifest) -> Iterator[str]:
    (replicated_job,) = jobset["spec"]["replicatedJobs"]
    job = replicated_job["template"]["spec"]
    if job["completionMode"] != "Indexed":
        yield "hosts have no index"
    if job["completions"] != job["parallelism"] or job["completions"] < 1:
        yield "all hosts of a gang run at once"
    if job["backoffLimit"] != 0:
        yield "the Job would restart single hosts"
    if "podFailurePolicy" in job:
        if job["template"]["spec"]["restartPolicy"] != "Never":
            yield "podFailurePolicy needs restartPolicy Never"
        if job["podReplacementPolicy"] != "Failed":
            yield "podFailurePolicy needs podReplacementPolicy Failed"
        for rule in job["podFailurePolicy"]["rules"]:
            if rule["action"] not in ("FailJob", "Ignore", "Count", "FailIndex"):
                yield f"action {rule['action']}"
            if ("onExitCodes" in rule) == ("onPodConditions" in rule):
                yield "a rule of podFailurePolicy is about exit codes or conditions"


def _pod(jobset: Manifest) -> Iterator[str]:
    template = pod_template(jobset)
    spec = template["spec"]
    for labels in (
        jobset["metadata"]["labels"],
        jobset["spec"]["replicatedJobs"][0]["template"]["metadata"]["labels"],
        template["metadata"]["labels"],
        spec.get("nodeSelector", {}),
    ):
        for key, value in labels.items():
            if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
                yield f"label {key}={value}"
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    yield from _repeated("container", [container["name"] for container in containers])
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    yield from _repeated("volume", volumes)
    for volume in spec.get("volumes", []):
        if len(volume) != 1 + VOLUME_SOURCES_PER_VOLUME:
            yield f"volume {volume['name']} has sources {sorted(volume.keys() - {'name'})}"
    for container in containers:
        mounts = container.get("volumeMounts", [])
        yield from _repeated("mount", [mount["mountPath"] for mount in mounts])
        yield from (f"mount of unknown volume {m['name']}" for m in mounts if m["name"] not in volumes)
        ports = container.get("ports", [])
        yield from _repeated("port", [port["name"] for port in ports if "name" in port])
        yield from (
            f"port {p['name']!r}" for p in ports if "name" in p and not PORT_NAME.fullmatch(p["name"])
        )
        resources = container.get("resources", {})
        for key, limit in resources.get("limits", {}).items():
            if "/" in key and resources.get("requests", {}).get(key, limit) != limit:
                yield f"request and limit of extended resource {key} differ"


def _environment(jobset: Manifest) -> Iterator[str]:
    spec = pod_template(jobset)["spec"]
    for container in spec["containers"]:
        yield from _repeated("variable", [entry["name"] for entry in container.get("env", [])])
        for entry in container.get("env", []):
            if entry.get("value") and "valueFrom" in entry:
                yield f"{entry['name']} has a value and a source"
    container = main_container(jobset)
    defined: set[str] = set()
    known = {entry["name"] for entry in container["env"]}
    (replicated_job,) = jobset["spec"]["replicatedJobs"]
    longest_slice = str(replicated_job["replicas"] - 1)
    for entry in container["env"]:
        value = entry.get("value") or ""
        for name in references_of(value):
            if name in known - defined:
                yield f"{entry['name']} refers to {name}, which is defined later"
        longest = value.replace("$(FRAY_SLICE)", longest_slice)
        if len(entry["name"]) + 1 + len(longest.encode()) + 1 > MAX_ARG_STRLEN:
            yield f"{entry['name']} is longer than Linux allows"
        defined.add(entry["name"])


def _repeated(what: str, names: list[str]) -> Iterator[str]:
    yield from (f"{what} {name!r} occurs twice" for name in {n for n in names if names.count(n) > 1})
