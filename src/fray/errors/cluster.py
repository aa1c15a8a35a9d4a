"""A Kubernetes cluster can't be reached or used: its administrator acts, or its user."""

from __future__ import annotations

from fray.errors.surroundings import SurroundingsError

__all__ = [
    "AccessDeniedError",
    "ClusterClosedError",
    "ClusterConfigError",
    "ClusterUnreachableError",
    "FrayNotInstalledError",
    "JobLeftBehindError",
    "NamespaceNotFoundError",
    "RayRefusedError",
    "RayUnreachableError",
]

SERVICE_ACCOUNT = "system:serviceaccount:"
ANONYMOUS = "system:anonymous"
CERTIFICATE_REFUSED = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's word for a server that answers, with a certificate that nobody vouches for whom we know."""


class ClusterConfigError(SurroundingsError):
    """Nothing here tells how to reach a cluster; `tried` are the places and what was wrong with each."""

    next_step = (
        "Look at `kubectl config get-contexts`, then name one: FRAY_CLUSTER_SPEC=k8s?context=NAME; "
        "KUBECONFIG=FILE names another file."
    )

    context: str | None
    tried: tuple[str, ...]

    @property
    def message(self) -> str:
        """What was looked for, and where."""
        wanted = "a Kubernetes cluster" if self.context is None else f"the context {self.context!r}"
        return f"nothing tells how to reach {wanted}; tried: {'; '.join(self.tried)}"


class ClusterUnreachableError(SurroundingsError):
    """The API server of a cluster gave no answer, or one that can't be trusted to be its own."""

    server: str
    request: str
    problem: str

    @property
    def message(self) -> str:
        """The server, the request and what happened to it."""
        if CERTIFICATE_REFUSED in self.problem:
            cause = f"{self.request}: {self.problem}"
            return f"the certificate of the Kubernetes API server {self.server} isn't trusted ({cause})"
        return f"no answer from the Kubernetes API server {self.server} ({self.request}: {self.problem})"

    @property
    def next_step(self) -> str:
        """What to look at; new credentials where the server may have others than it had."""
        if CERTIFICATE_REFUSED in self.problem:
            return (
                "Fetch the cluster's credentials anew, as after it was made again: they hold its certificate "
                "authority (on GKE `gcloud container clusters get-credentials NAME`)."
            )
        return "Check with `kubectl version` that it can be reached from here (network, VPN, proxy)."


class FrayNotInstalledError(SurroundingsError):
    """A cluster doesn't know FrayJobs."""

    message = "the cluster at {server} has no {resource}: Fray isn't installed there"
    next_step = "Install it: `helm install fray charts/fray -n fray-system --create-namespace`."

    server: str
    resource: str


class NamespaceNotFoundError(SurroundingsError):
    """The namespace that jobs are to run in doesn't exist."""

    message = "there is no namespace {namespace!r} in the cluster at {server}"
    next_step = "Make it with `kubectl create namespace {namespace}`, or name another: k8s?namespace=NAME."

    namespace: str
    server: str


class AccessDeniedError(SurroundingsError):
    """An account lacks a right; `resource` is as in a role, such as `frayjobs.fray.dev` or `pods/log`."""

    message = "{account!r} may not {verb} {resource} in namespace {namespace!r} of the cluster at {server}"

    account: str
    verb: str
    resource: str
    namespace: str
    server: str

    @property
    def next_step(self) -> str:
        """What an administrator can do; never to give rights to those who haven't said who they are."""
        if self.account == ANONYMOUS:
            return (
                "The kubeconfig's user has no credentials, or none that this cluster knows: log in to it "
                "anew (`kubectl config view --minify` shows the user)."
            )
        if self.account.startswith(SERVICE_ACCOUNT):
            subject = f"--serviceaccount={self.account.removeprefix(SERVICE_ACCOUNT)}"
        else:
            subject = f"--user={self.account}"
        return (
            f"An administrator can grant the verb {self.verb!r} on {self.resource}. The ClusterRole `edit` "
            "has all that is needed, since Fray's chart adds to it: `kubectl create rolebinding fray-edit "
            f"--clusterrole=edit {subject} -n {self.namespace}`."
        )


class JobLeftBehindError(SurroundingsError):
    """A job couldn't be launched to its end, and what was made of it couldn't be removed."""

    message = "FrayJob {name!r} may have been left behind by a launch that failed: {problem}"
    next_step = "Remove it: `kubectl delete frayjob {name} -n {namespace} --ignore-not-found`."

    name: str
    namespace: str
    problem: str


class ClusterClosedError(SurroundingsError):
    """A call was under way on a cluster object that another thread closed; `cluster` is its spec."""

    message = "the cluster object for {cluster!r} was closed while a call on it was under way"
    next_step = "Close it after the last call; jobs run on, and a new object can be asked for them."

    cluster: str


class RayUnreachableError(SurroundingsError):
    """Ray's job API gave no answer, or doesn't know who asks."""

    message = "no answer from the job API of Ray at {address}: {problem}"
    next_step = (
        "Name Ray's dashboard, ray?address=http://HEAD:8265, and give its token in RAY_AUTH_TOKEN "
        "with RAY_AUTH_MODE=token."
    )

    address: str
    problem: str


class RayRefusedError(SurroundingsError):
    """Ray's job API answered that it can't; `status` is the HTTP status."""

    message = "Ray at {address} refuses ({status}): {problem}"
    next_step = "Look at the logs of Ray's dashboard (`ray job list`); then ask again."

    address: str
    status: int
    problem: str
