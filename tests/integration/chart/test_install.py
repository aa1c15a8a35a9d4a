"""The chart on a real API server: installed, upgraded, removed, and used with the rights it really gives."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.api import Response
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.wire.frayjob import FrayJob
from tests.integration.chart.chart_cluster import (
    CHART,
    CRD,
    JOBSETS,
    Cluster,
    HelmError,
    allowed,
    bare_cluster,
    frayjob,
    jobs_in,
)
from tests.integration.frayjobs import await_served


def test_operators_pod_is_admitted_where_only_restricted_pods_are(installed: Cluster) -> None:
    path = "/apis/apps/v1/namespaces/fray-system/deployments/fray-operator"
    template = installed.api.get(path).body["spec"]["template"]
    pod = {**template, "metadata": {**template["metadata"], "name": "probe"}}
    created = installed.api.post("/api/v1/namespaces/fray-system/pods", pod)
    assert created.status == 201, created.body


def test_jobs_with_the_documented_overlay_are_admitted_there_too(installed: Cluster) -> None:
    readme = (CHART / "README.md").read_text(encoding="utf-8")
    (overlay,) = re.findall(r"```yaml\n(podTemplate:.*?)```", readme, flags=re.DOTALL)
    plain = frayjob("confined")
    plain["metadata"] |= {"namespace": "fray-system", "uid": "u"}
    confined = {**plain, "spec": {**plain["spec"], **yaml.safe_load(overlay)}}
    refused, admitted = (create_first_pod(installed, job) for job in (plain, confined))
    assert "violates PodSecurity" in refused.body["message"]
    assert admitted.status == 201, admitted.body


def create_first_pod(cluster: Cluster, job: dict[str, Any]) -> Response:
    """Try to create a pod of a job as its JobSet would."""
    jobset = build_attempt(FrayJob.from_manifest(job), attempt=1, settings=PlanSettings()).jobset
    (replicated,) = jobset["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]
    return cluster.api.post("/api/v1/namespaces/fray-system/pods", {**pod, "metadata": {"name": "first"}})


def test_cluster_wide_operator_may_do_its_work_everywhere_and_no_more(installed: Cluster) -> None:
    operator = installed.account("fray-system", "fray-operator")
    for namespace in ("default", "kube-system"):
        assert allowed(operator, "watch", "fray.dev/frayjobs", namespace=namespace)
        assert allowed(operator, "update", "fray.dev/frayjobs:status", namespace=namespace)
        assert allowed(operator, "create", "jobset.x-k8s.io/jobsets", namespace=namespace)
        # It stops children of jobs that failed, and deletes jobs whose time to live is over.
        assert allowed(operator, "update", "fray.dev/frayjobs", namespace=namespace)
        assert allowed(operator, "delete", "fray.dev/frayjobs", namespace=namespace)
        assert not allowed(operator, "create", "fray.dev/frayjobs", namespace=namespace)
        assert allowed(operator, "create", "secrets", namespace=namespace)
        for verb in ("get", "update"):
            assert allowed(operator, verb, "secrets", namespace=namespace, name="fray-auth")
            assert not allowed(operator, verb, "secrets", namespace=namespace)
        assert not allowed(operator, "delete", "secrets", namespace=namespace, name="fray-auth")
        assert not allowed(operator, "create", "pods", namespace=namespace)
    assert allowed(operator, "list", "nodes")
    lease = "coordination.k8s.io/leases"
    assert allowed(operator, "update", lease, namespace="fray-system", name="fray-operator")
    assert not allowed(operator, "update", lease, namespace="fray-system", name="another")
    # It claims the cluster by a Lease that exists in every cluster at the same place.
    assert allowed(operator, "create", lease, namespace="default")
    assert allowed(operator, "update", lease, namespace="default", name="fray-scope-cluster")
    assert not allowed(operator, "update", lease, namespace="default", name="another")
    assert not allowed(operator, "create", lease, namespace="kube-system")


def test_operator_writes_status_and_owned_jobsets_with_its_own_token(installed: Cluster) -> None:
    created = installed.api.post(jobs_in("default"), frayjob("written"))
    operator = installed.account("fray-system", "fray-operator")
    read = operator.get(f"{jobs_in('default')}/written").body
    status = {"phase": "Pending"}
    assert operator.put(f"{jobs_in('default')}/written/status", {**read, "status": status}).ok
    owner = {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "name": "written",
        "uid": created.body["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "written", "ownerReferences": [owner]},
        "spec": {"replicatedJobs": []},
    }
    answer = operator.post("/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets", jobset)
    assert answer.status == 201, answer.body


def test_a_job_starts_jobs_but_neither_reads_secrets_nor_writes_a_status(installed: Cluster) -> None:
    job = installed.account("default", "fray-job")
    assert job.post(jobs_in("default"), frayjob("child")).status == 201
    assert job.put(f"{jobs_in('default')}/child/status", frayjob("child")).status == 403
    secret = {"metadata": {"name": "payload"}, "stringData": {"payload-000": "x"}}
    assert job.post("/api/v1/namespaces/default/secrets", secret).status == 201
    assert job.get("/api/v1/namespaces/default/secrets/payload").status == 403
    assert job.get("/api/v1/namespaces/default/secrets").status == 403
    assert job.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "outcome"}}).status == 201
    assert job.get("/api/v1/namespaces/default/configmaps/outcome").ok
    assert job.get("/api/v1/namespaces/default/configmaps").status == 403
    assert job.get("/api/v1/namespaces/default/pods").ok
    assert job.get(jobs_in("kube-system")).status == 403
    assert job.delete(f"{jobs_in('default')}/child").ok


def test_another_cluster_wide_installation_is_refused(installed: Cluster) -> None:
    installed.create_namespace("second")
    with pytest.raises(HelmError, match="cannot be imported into the current release"):
        installed.helm("install", "other", str(CHART), "--namespace=second")


def test_crds_are_upgraded_with_the_chart_and_outlive_it(own_cluster: Cluster, tmp_path: Path) -> None:
    own_cluster.api.post(jobs_in("default"), frayjob("survivor"))
    newer = tmp_path / "fray"
    shutil.copytree(CHART, newer)
    (path,) = (newer / "files" / "crds").glob("frayjobs*")
    path.write_text(
        path.read_text(encoding="utf-8").replace("name: Reason\n", "name: Why\n"), encoding="utf-8"
    )

    own_cluster.helm("upgrade", "fray", str(newer), "--namespace=fray-system")
    assert "Why" in columns(own_cluster)
    own_cluster.helm("uninstall", "fray", "--namespace=fray-system")
    assert not own_cluster.api.get("/apis/apps/v1/namespaces/fray-system/deployments/fray-operator").ok
    assert "Why" in columns(own_cluster)
    own_cluster.helm("install", "fray", str(CHART), "--namespace=fray-system")
    assert "Why" not in columns(own_cluster)
    assert "Reason" in columns(own_cluster)
    assert own_cluster.api.get(f"{jobs_in('default')}/survivor").ok


def columns(cluster: Cluster) -> list[str]:
    (version,) = cluster.api.get(CRD).body["spec"]["versions"]
    return [column["name"] for column in version["additionalPrinterColumns"]]


def test_crds_that_others_installed_are_taken_over_on_request(own_cluster: Cluster) -> None:
    own_cluster.helm("uninstall", "fray", "--namespace=fray-system")
    own_cluster.create_namespace("moved")
    with pytest.raises(HelmError, match="invalid ownership metadata"):
        own_cluster.helm("install", "fray", str(CHART), "--namespace=moved")
    own_cluster.helm("install", "fray", str(CHART), "--namespace=moved", "--take-ownership")
    owner = own_cluster.api.get(CRD).body["metadata"]["annotations"]["meta.helm.sh/release-namespace"]
    assert owner == "moved"


def test_single_namespace_is_installed_and_served_with_rights_in_that_namespace_alone(
    cluster: Cluster,
) -> None:
    team, user = cluster.create_namespace("team"), "team-lead"
    cluster.bind(team, user, [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
    notes = cluster.helm(
        "install", "own", str(CHART), f"--namespace={team}", "--set=scope=namespace", user=user
    )
    assert "serves FrayJobs in team." in notes

    operator = cluster.account(team, "own-operator")
    assert allowed(operator, "watch", "fray.dev/frayjobs", namespace=team)
    assert allowed(operator, "create", "jobset.x-k8s.io/jobsets", namespace=team)
    assert allowed(operator, "update", "coordination.k8s.io/leases", namespace=team, name="fray-operator")
    assert not allowed(operator, "watch", "fray.dev/frayjobs")
    assert not allowed(operator, "list", "fray.dev/frayjobs", namespace="default")
    assert not allowed(operator, "list", "nodes")
    job = cluster.account(team, "fray-job")
    assert allowed(job, "create", "fray.dev/frayjobs", namespace=team)
    cluster.helm("uninstall", "own", f"--namespace={team}", user=user)


def test_who_may_not_hand_out_the_rights_installs_without_them(cluster: Cluster) -> None:
    team, user = cluster.create_namespace("small-team"), "small-lead"
    edit = ["get", "list", "create", "update", "patch", "delete"]
    cluster.bind(
        team,
        user,
        [
            {"apiGroups": [""], "resources": ["secrets", "services", "serviceaccounts"], "verbs": edit},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": edit},
            {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": edit},
            {
                "apiGroups": ["rbac.authorization.k8s.io"],
                "resources": ["roles", "rolebindings"],
                "verbs": edit,
            },
        ],
    )
    install = ("upgrade", "--install", "own", str(CHART), f"--namespace={team}", "--set=scope=namespace")
    with pytest.raises(HelmError, match="attempting to grant RBAC permissions not currently held"):
        cluster.helm(*install, user=user)
    cluster.helm("uninstall", "own", f"--namespace={team}", user=user)

    # As the chart's README says: first the administrator, with the roles and without what helm makes.
    granted = cluster.helm(
        *("template", "own", str(CHART), f"--namespace={team}", "--set=scope=namespace"),
        "--set=jobs.serviceAccount.create=false",
        *("--show-only=templates/operator-rbac.yaml", "--show-only=templates/jobs-rbac.yaml"),
    )
    for manifest in yaml.safe_load_all(granted):
        cluster.api.apply_object(manifest, field_manager="administrator")
    notes = cluster.helm(*install, "--set=rbac.create=false", user=user)
    assert "Nothing was granted" in notes
    assert allowed(cluster.account(team, "fray-job"), "create", "fray.dev/frayjobs", namespace=team)
    assert allowed(cluster.account(team, "own-operator"), "watch", "fray.dev/frayjobs", namespace=team)


def test_one_installation_does_all_the_set_up_of_a_cluster(tmp_path: Path) -> None:
    """tests/chart compares the JobSet inside with the release that the Go proxy has."""
    with bare_cluster(tmp_path) as cluster:
        cluster.create_namespace("fray-system")
        assert not cluster.api.get(JOBSETS).ok
        notes = cluster.helm(
            "install", "fray", str(CHART), "--namespace=fray-system", "--set=jobset.enabled=true"
        )
        assert "NEXT" not in notes
        for crd in (CRD, JOBSETS):
            await_served(cluster.api, crd)
        deployments = cluster.api.get("/apis/apps/v1/namespaces/fray-system/deployments").body["items"]
        assert {each["metadata"]["name"] for each in deployments} == {
            "fray-operator",
            "fray-jobset-controller",
        }
        operator = cluster.account("fray-system", "fray-operator")
        assert operator.get(jobs_in("default")).ok
        # The webhooks of a JobSet that runs nowhere here stand between.
        job = {**frayjob("train"), "metadata": {"name": "train", "namespace": "default", "uid": "u"}}
        jobset = build_attempt(FrayJob.from_manifest(job), attempt=1, settings=PlanSettings()).jobset
        path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
        assert "failed calling webhook" in operator.post(path, jobset).body["message"]
