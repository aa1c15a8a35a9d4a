"""Examining a cluster for `fray doctor`: whether it can be reached and has what jobs need.

Questions only: nothing is written, but for the reviews by which the API server tells of an account. What the
answers mean is `check_results`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any, TypeVar

from fray.cluster.answers import CheckResult, Mark
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import explain
from fray.cluster.kubernetes.check_results import (
    NEEDED,
    Right,
    find_default_image,
    find_image_tags,
    find_served_namespaces,
    judge_clock,
    judge_leases,
    judge_nodes,
    judge_rights,
    judge_versions,
)
from fray.errors import FrayNotInstalledError, NamespaceNotFoundError
from fray.kube.api import Manifest
from fray.kube.errors import ApiError, ForbiddenError, NotFoundError, UnauthorizedError
from fray.kube.resources import (
    ACCESS_REVIEWS,
    DEPLOYMENTS,
    FRAYJOBS,
    JOBSETS,
    LEASES,
    NAMESPACES,
    NODES,
    SELF_REVIEWS,
    SERVICE_ACCOUNTS,
    Resource,
)
from fray.plan.settings import PlanSettings
from fray.plan.timestamps import parse_time

__all__ = ["examine"]

T = TypeVar("T")

ANSWER_SECONDS = 10.0
"""A server that takes longer for one small question is of no use to anybody who waits."""
LEASE_NAME = "fray-operator"
"""As the chart names it."""
OPERATORS = "app.kubernetes.io/name=fray-operator"
JOBSET_CONTROLLERS = "app.kubernetes.io/name=jobset"
"""As JobSet's chart and its manifests label it."""
OPERATORS_NAMESPACE = "fray-system"
JOBSET_INSTALL = (
    "Install it: `helm install jobset oci://registry.k8s.io/jobset/charts/jobset -n jobset-system "
    "--create-namespace --wait`."
)
FRAY_INSTALL = FrayNotInstalledError("", "").next_step
Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


async def examine(access: Access, spec: KubernetesSpec, *, clock: Clock = _utc_now) -> list[CheckResult]:
    """Return what is found of a cluster, in the order in which it is worth mending.

    Raises `UnauthorizedError` where the credentials aren't accepted.
    """
    first, account, ahead = await _ask_server(access, clock)
    if account is None:
        return first
    examination = _Examination(access, spec, account, lambda: clock() - ahead)
    parts = await asyncio.gather(
        examination.check_kinds(),
        examination.check_operator(),
        examination.check_jobset(),
        examination.check_namespace(),
        examination.check_rights(),
        examination.check_accelerators(),
    )
    return [*first, *(result for part in parts for result in part)]


async def _ask_server(access: Access, clock: Clock) -> tuple[list[CheckResult], str | None, timedelta]:
    """Return whether the server answers, as whom it knows the caller, and how far our clock is ahead."""
    subject = "API server"
    sent = clock()
    body: Manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}
    try:
        review = await _soon(access.api.create(SELF_REVIEWS, body))
    except UnauthorizedError:
        raise
    except NotFoundError:
        seen = f"{access.server} answers, and is too old to tell as whom"
        return [CheckResult(subject, Mark.OK, seen)], "this account", timedelta()
    except ApiError as error:
        explained = explain(error, server=access.server, namespace=access.namespace)
        return [CheckResult(subject, Mark.WRONG, explained.message, explained.next_step)], None, timedelta()
    except TimeoutError:
        seen = f"{access.server} takes the connection, and is silent for {ANSWER_SECONDS:.0f} s"
        step = "Look at the network between here and there (VPN, proxy), and at the server itself."
        return [CheckResult(subject, Mark.WRONG, seen, step)], None, timedelta()
    account = str((review.get("status") or {}).get("userInfo", {}).get("username") or "this account")
    results = [CheckResult(subject, Mark.OK, f"{access.server}, as {account}")]
    stamp = review["metadata"].get("creationTimestamp")
    if not stamp:
        return results, account, timedelta()
    ours = sent + (clock() - sent) / 2
    servers = parse_time(stamp)
    results.append(judge_clock(ours, servers))
    return results, account, ours - servers


class _Examination:
    """What an account that the server knows can see."""

    def __init__(self, access: Access, spec: KubernetesSpec, account: str, now: Clock) -> None:
        self._access, self._spec, self._account = access, spec, account
        self._api, self._namespace, self._now = access.api, access.namespace, now

    async def check_kinds(self) -> list[CheckResult]:
        """Look for Fray's own kinds."""
        return [
            await self._check_kind("Fray's CRDs", FRAYJOBS, ("frayjobs", "frayjobs/status"), FRAY_INSTALL)
        ]

    async def check_jobset(self) -> list[CheckResult]:
        """Look for JobSet."""
        found, controllers = await asyncio.gather(
            self._check_kind("JobSet", JOBSETS, ("jobsets",), JOBSET_INSTALL),
            self._find_deployments(JOBSET_CONTROLLERS),
        )
        if found.mark is not Mark.OK or controllers is None:
            return [found]
        running = ", ".join(find_image_tags(controllers)) or "without a controller that can be seen"
        return [replace(found, seen=f"{found.seen}, {running}")]

    async def _check_kind(
        self, subject: str, resource: Resource, needed: tuple[str, ...], install: str
    ) -> CheckResult:
        wanted = f"{resource.group}/{resource.version}"
        try:
            group = await _soon(self._api.discover(resource.group))
            versions = [each["version"] for each in group.get("versions") or []]
            if resource.version not in versions:
                seen = f"the cluster has {resource.group} in {', '.join(versions)}, not in {resource.version}"
                return CheckResult(subject, Mark.WRONG, seen, f"Install the release that has it. {install}")
            served = await _soon(self._api.discover(resource.group, resource.version))
        except NotFoundError:
            return CheckResult(subject, Mark.WRONG, f"the cluster has no {resource}", install)
        except (ApiError, TimeoutError) as error:
            return self._unseen(subject, error)
        kinds = {each["name"] for each in served.get("resources") or []}
        missing = [name for name in needed if name not in kinds]
        if missing:
            return CheckResult(subject, Mark.WRONG, f"{wanted} lacks {', '.join(missing)}", install)
        return CheckResult(subject, Mark.OK, f"{wanted} is served")

    async def check_operator(self) -> list[CheckResult]:
        """Look whether an operator leads, which namespaces it serves, and what jobs get by default."""
        leases, deployments = await asyncio.gather(self._find_leases(), self._find_deployments(OPERATORS))
        if isinstance(leases, Exception):
            results = [self._unseen("operator", leases)]
        else:
            results = [judge_leases(leases, now=self._now())]
        results += judge_versions(deployments or [], ours=version("fray"))
        image, account = find_default_image(deployments or [])
        served = find_served_namespaces(deployments or [])
        if served and self._namespace not in served:
            seen = f"it serves namespace {', '.join(served)}, and not {self._namespace}"
            step = f"Use `-n {served[0]}`, or install an operator for {self._namespace}."
            results.append(CheckResult("namespaces of the operator", Mark.WRONG, seen, step))
        results.append(self._judge_image(image, known=deployments is not None))
        results.append(await self._check_service_account(account))
        return results

    async def _find_leases(self) -> list[Manifest] | ApiError | TimeoutError:
        found = await self._see(self._list(LEASES, fields=f"metadata.name={LEASE_NAME}"))
        if not isinstance(found, ForbiddenError):
            return found
        # An account of one namespace may see that one's.
        for namespace in dict.fromkeys((self._namespace, OPERATORS_NAMESPACE)):
            lease = await self._see(self._api.get(LEASES, LEASE_NAME, namespace=namespace))
            if isinstance(lease, dict):
                return [lease]
        return found

    async def _find_deployments(self, labels: str) -> list[Manifest] | None:
        """Return the Deployments with these labels, None where they can't be seen."""
        found = await self._see(self._list(DEPLOYMENTS, labels=labels))
        return found if isinstance(found, list) else None

    def _judge_image(self, image: str | None, *, known: bool) -> CheckResult:
        subject = "default image"
        if self._spec.image is not None:
            return CheckResult(subject, Mark.OK, f"{self._spec.image}, by the cluster spec")
        if image is not None:
            return CheckResult(subject, Mark.OK, f"{image}, by the operator")
        why = "no operator's Deployment is there" if known else "this account may not see Deployments"
        return CheckResult(subject, Mark.UNKNOWN, why, "Name one in jobs, or in the spec: `k8s?image=IMAGE`.")

    async def _check_service_account(self, default: str | None) -> CheckResult:
        subject = "service account of jobs"
        name = self._spec.service_account or default or PlanSettings().service_account
        found = await self._see(self._api.get(SERVICE_ACCOUNTS, name, namespace=self._namespace))
        if isinstance(found, dict):
            return CheckResult(subject, Mark.OK, f"{name} in namespace {self._namespace}")
        if isinstance(found, NotFoundError):
            seen = f"namespace {self._namespace} has no ServiceAccount {name}: no pod of a job starts"
            step = (
                "Let the chart make it: `helm upgrade fray charts/fray -n fray-system --reuse-values "
                f"--set 'jobs.namespaces={{{self._namespace}}}'` (with the other namespaces)."
            )
            return CheckResult(subject, Mark.WRONG, seen, step)
        return self._unseen(subject, found)

    async def check_namespace(self) -> list[CheckResult]:
        """Look for the namespace."""
        name = self._namespace
        found = await self._see(self._api.get(NAMESPACES, name))
        if isinstance(found, dict):
            if (found.get("status") or {}).get("phase") == "Terminating":
                step = "Name another: `-n NAME`."
                return [CheckResult("namespace", Mark.WRONG, f"{name} is being deleted", step)]
            return [CheckResult("namespace", Mark.OK, name)]
        if isinstance(found, NotFoundError):
            missing = NamespaceNotFoundError(name, self._access.server)
            return [CheckResult("namespace", Mark.WRONG, missing.message, missing.next_step)]
        return [self._unseen("namespace", found)]

    async def check_rights(self) -> list[CheckResult]:
        """Ask for each right that a client needs whether this account has it."""
        try:
            answers = await asyncio.gather(*(_soon(self._ask_right(right)) for right in NEEDED))
        except (ApiError, TimeoutError) as error:
            return [self._unseen("rights", error)]
        return judge_rights(
            dict(zip(NEEDED, answers, strict=True)),
            account=self._account,
            namespace=self._namespace,
            server=self._access.server,
        )

    async def _ask_right(self, right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "namespace": self._namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }
        review = await self._api.create(ACCESS_REVIEWS, body)
        return bool((review.get("status") or {}).get("allowed"))

    async def check_accelerators(self) -> list[CheckResult]:
        """Look at the nodes."""
        nodes = await self._see(self._list(NODES))
        return [judge_nodes(nodes) if isinstance(nodes, list) else self._unseen("accelerators", nodes)]

    async def _list(self, resource: Resource, *, labels: str = "", fields: str = "") -> list[Manifest]:
        pages: AsyncIterator[Any] = self._api.list_pages(resource, labels=labels, fields=fields)
        return [item async for page in pages for item in page.items]

    async def _see(self, question: Coroutine[Any, Any, T]) -> T | ApiError | TimeoutError:
        try:
            return await _soon(question)
        except UnauthorizedError:
            raise
        except (ApiError, TimeoutError) as error:
            return error

    def _unseen(self, subject: str, error: object) -> CheckResult:
        """What an account may not see is left open; a server that fails is in the way of all else."""
        if isinstance(error, ForbiddenError):
            seen = explain(error, server=self._access.server, namespace=self._namespace).message
            return CheckResult(subject, Mark.UNKNOWN, seen, "Ask an administrator, if jobs don't start.")
        if isinstance(error, ApiError):
            explained = explain(error, server=self._access.server, namespace=self._namespace)
            return CheckResult(subject, Mark.WRONG, explained.message, explained.next_step)
        seen = f"no answer within {ANSWER_SECONDS:.0f} s"
        return CheckResult(subject, Mark.WRONG, seen, "Try again; if it stays so, look at the API server.")


async def _soon(question: Awaitable[T]) -> T:
    async with asyncio.timeout(ANSWER_SECONDS):
        return await question
