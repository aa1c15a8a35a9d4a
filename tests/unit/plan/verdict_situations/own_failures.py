"""What a program does to itself: exit codes, signals, memory, disk, deadlines, and peers that follow it."""

from __future__ import annotations

from typing import Any

from fray.errors import (
    FrayError,
    PackagesNotInstalledError,
    PayloadChangedError,
    PayloadCodeError,
    PayloadMissingError,
    PayloadPythonError,
    PayloadUnreadableError,
    WorkspaceChangedError,
)
from fray.termination import Ending, TerminationMessage
from fray.vocabulary import Reason, VerdictKind
from tests.unit.plan.verdict_situations.manifests import (
    evicted_mark,
    exited,
    jobset,
    mark,
    pod,
    running,
    waiting,
)
from tests.unit.plan.verdict_situations.situation import (
    CONTAINERD,
    E2E,
    KUBERNETES,
    PAIR,
    SLICES,
    Manifest,
    Scene,
    Situation,
)

__all__ = ["SITUATIONS"]

STATUS = KUBERNETES + "pkg/kubelet/kubelet_pods.go"
EVICTION = KUBERNETES + "pkg/kubelet/eviction/helpers.go"
WHO = "rank 0 (slice 0, host 0)"
RUNNER = "made as fray.runtime.outcome_report does"
OOM = CONTAINERD + "pkg/cri/server/events.go"
USED = (
    "The node was low on resource: memory. Container main was using 9Gi, request is 1Gi, "
    "has larger consumption of memory. "
)


def failed(
    name: str, source: str, reason: Reason, *pods: Manifest, says: tuple[str, ...], **more: Any
) -> Situation:
    return Situation(name, source, (Scene(1, pods),), reason, VerdictKind.FAILURE, says, **more)


def code(number: int, told: str, reason: Reason, *, log: str = "", name: str = "") -> Situation:
    """Return a lone host that exited with a code."""
    state = exited(number, message=log)
    says = (f"{WHO} {told}", *log.splitlines()[-3:])
    return failed(
        name or f"exit code {number}", STATUS, reason, pod(0, "Failed", state), says=says, code=number
    )


def refusal(error: FrayError) -> str:
    """Return the termination message of a process that can't run its callable."""
    return TerminationMessage(Ending.NEVER_RAN, type(error).__name__, str(error)).to_json()


def never_ran(
    number: int, reason: Reason, error: FrayError, told: str = "never ran its program"
) -> Situation:
    """Return a lone host whose entrypoint never ran."""
    state = exited(number, message=refusal(error))
    says = (f"{WHO} {told} (exit code {number})", type(error).__name__, error.next_step)
    name = f"the callable never ran: {type(error).__name__}"
    return failed(name, RUNNER, reason, pod(0, "Failed", state), says=says, code=number)


EXITS = (
    failed(
        "the program fails on one host, which ends its peer",
        E2E + "test_endings.py; " + STATUS,
        Reason.NON_ZERO_EXIT,
        pod(0, "Failed", exited(143, after=1), deleted=1),
        pod(1, "Failed", exited(3, message="out of luck\n")),
        says=("rank 1 (slice 0, host 1) exited with code 3", "out of luck"),
        first=1,
        code=3,
        shape=PAIR,
    ),
    code(1, "exited with code 1", Reason.NON_ZERO_EXIT, log="Traceback\nValueError: shape\n"),
    never_ran(112, Reason.WORKSPACE_INVALID, WorkspaceChangedError("ab12", "00ff", 4096), "got no workspace"),
    never_ran(
        113,
        Reason.PACKAGES_NOT_INSTALLED,
        PackagesNotInstalledError(("optax==99",), "not found"),
        "couldn't install its packages",
    ),
    code(112, "exited with code 112", Reason.NON_ZERO_EXIT, name="a program's own exit code 112"),
    never_ran(114, Reason.PAYLOAD_MISSING, PayloadMissingError("/run/fray/payload", "part-00 isn't there")),
    never_ran(115, Reason.PAYLOAD_INVALID, PayloadChangedError("ab12", "00ff", 4096)),
    never_ran(116, Reason.IMAGE_MISMATCH, PayloadPythonError("3.11", "3.13")),
    never_ran(117, Reason.IMAGE_MISMATCH, PayloadCodeError("train", "No module named 'optax'", "optax")),
    never_ran(118, Reason.PAYLOAD_INVALID, PayloadUnreadableError("TypeError: bad state")),
    code(116, "exited with code 116", Reason.NON_ZERO_EXIT, name="a program's own exit code 116"),
    failed(
        "the callable never ran, and a peer is drained at the same time",
        RUNNER,
        Reason.IMAGE_MISMATCH,
        pod(0, "Failed", exited(116, message=refusal(PayloadPythonError("3.11", "3.13")))),
        pod(1, "Failed", exited(143, after=1), mark("EvictionByEvictionAPI", "Eviction API: evicting")),
        says=(f"{WHO} never ran its program (exit code 116)", "Use an image with Python 3.11"),
        code=116,
        shape=PAIR,
    ),
    code(127, "exited with code 127", Reason.NON_ZERO_EXIT, log="sh: 1: trian: not found\n"),
    code(134, "was killed by SIGABRT (exit code 134)", Reason.KILLED_BY_SIGNAL),
    code(137, "was killed by SIGKILL (exit code 137)", Reason.KILLED_BY_SIGNAL),
    code(139, "was killed by SIGSEGV (exit code 139)", Reason.KILLED_BY_SIGNAL),
    code(143, "was killed by SIGTERM (exit code 143)", Reason.KILLED_BY_SIGNAL),
    code(255, "exited with code 255", Reason.NON_ZERO_EXIT, name="sys.exit(-1)"),
    failed(
        "the command doesn't exist",
        E2E + "test_endings.py; " + CONTAINERD + "pkg/cri/server/container_start.go",
        Reason.START_FAILED,
        pod(
            0,
            "Failed",
            exited(
                128,
                reason="StartError",
                message='failed to create containerd task: exec: "trian": executable file not found in $PATH',
            ),
        ),
        says=("could not start", '"trian": executable file not found'),
        code=128,
        ran=False,
    ),
    failed(
        "a host of a gang succeeds, another fails",
        STATUS,
        Reason.NON_ZERO_EXIT,
        pod(0, "Succeeded", exited(0, after=-9)),
        pod(1, "Failed", exited(1)),
        says=("rank 1 (slice 0, host 1) exited with code 1",),
        first=1,
        code=1,
        shape=PAIR,
    ),
    failed(
        "rank 0 fails, and all others lose their coordinator",
        STATUS,
        Reason.NON_ZERO_EXIT,
        pod(0, "Failed", exited(1, message="ValueError: shape"), hosts=2),
        *(
            pod(rank, "Failed", exited(1, after=2, message="coordination service error"), hosts=2)
            for rank in (1, 2, 3)
        ),
        says=(f"{WHO} exited with code 1", "ValueError: shape"),
        code=1,
        shape=SLICES,
    ),
    failed(
        "a sidecar keeps the pod alive whose program has failed",
        STATUS,
        Reason.NON_ZERO_EXIT,
        pod(0, "Running", exited(1)),
        says=(f"{WHO} exited with code 1",),
        code=1,
    ),
    failed(
        "the init container fails",
        STATUS,
        Reason.NON_ZERO_EXIT,
        pod(
            0,
            "Failed",
            waiting("PodInitializing"),
            init=exited(6, message="curl: (6) could not resolve host\n"),
        ),
        says=("init container 'fetch' exited with code 6",),
        ran=False,
    ),
    failed(
        "a host ran longer than its own deadline",
        KUBERNETES + "pkg/kubelet/active_deadline.go",
        Reason.DEADLINE_EXCEEDED,
        pod(
            0,
            "Failed",
            exited(137),
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified deadline",
        ),
        says=("activeDeadlineSeconds of its podTemplate",),
        code=137,
    ),
)

MEMORY = (
    failed(
        "a host runs out of memory",
        OOM,
        Reason.OUT_OF_MEMORY,
        pod(0, "Failed", exited(137, reason="OOMKilled", message="loading checkpoint\n")),
        says=(f"{WHO} ran out of memory (exit code 137)", "loading checkpoint"),
        code=137,
    ),
    failed(
        "a child process runs out of memory, and the program notices",
        OOM,
        Reason.OUT_OF_MEMORY,
        pod(0, "Failed", exited(1, reason="OOMKilled")),
        says=("ran out of memory (exit code 1)",),
        code=1,
    ),
    failed(
        "a host runs out of memory, its peers crash two seconds later",
        OOM,
        Reason.OUT_OF_MEMORY,
        pod(0, "Failed", exited(1, after=2)),
        pod(1, "Failed", exited(137, reason="OOMKilled")),
        says=("rank 1 (slice 0, host 1) ran out of memory",),
        first=1,
        code=137,
        shape=PAIR,
    ),
    failed(
        "a host runs out of memory, its peers crash in the same second",
        OOM,
        Reason.OUT_OF_MEMORY,
        pod(0, "Failed", exited(1)),
        pod(1, "Failed", exited(137, reason="OOMKilled")),
        says=("rank 1 (slice 0, host 1) ran out of memory",),
        first=1,
        code=137,
        shape=PAIR,
    ),
    failed(
        "a host crashes, and another runs out of memory after it",
        OOM,
        Reason.NON_ZERO_EXIT,
        pod(0, "Failed", exited(1)),
        pod(1, "Failed", exited(137, after=3, reason="OOMKilled")),
        says=(f"{WHO} exited with code 1",),
        code=1,
        shape=PAIR,
    ),
    failed(
        "a host runs out of memory, and then its peer is drained",
        OOM,
        Reason.OUT_OF_MEMORY,
        pod(0, "Failed", exited(137, reason="OOMKilled")),
        pod(1, "Failed", exited(143, after=3), evicted_mark(after=2), deleted=2),
        says=(f"{WHO} ran out of memory",),
        code=137,
        shape=PAIR,
    ),
    failed(
        "the node is short of memory that the host itself took",
        EVICTION,
        Reason.EVICTED,
        pod(0, "Failed", exited(137), mark("TerminationByKubelet", USED), reason="Evicted", message=USED),
        says=("was evicted for what it used itself", "Container main was using 9Gi, request is 1Gi"),
        code=137,
    ),
    failed(
        "a host takes its node's memory, its peer crashes in the same second",
        EVICTION,
        Reason.EVICTED,
        pod(0, "Failed", exited(1)),
        pod(1, "Failed", exited(137), mark("TerminationByKubelet", USED), reason="Evicted", message=USED),
        says=("rank 1 (slice 0, host 1) was evicted for what it used itself",),
        first=1,
        code=137,
        shape=PAIR,
    ),
)

TOOK = failed(
    "a host takes its node's memory, and then its peer is drained",
    EVICTION,
    Reason.EVICTED,
    pod(0, "Failed", exited(137), mark("TerminationByKubelet", USED), reason="Evicted", message=USED),
    pod(1, "Failed", exited(143, after=3), evicted_mark(after=2), deleted=2),
    says=(f"{WHO} was evicted for what it used itself",),
    code=137,
    shape=PAIR,
)

LOST = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located"}
UNMADE = failed(
    "a host fails while its peer's container is still to be made, and the peer is deleted for it",
    KUBERNETES + "pkg/kubelet/status/status_manager.go",
    Reason.NON_ZERO_EXIT,
    pod(0, "Failed", exited(3)),
    pod(1, "Failed", {"terminated": LOST}, deleted=4),
    says=(f"{WHO} exited with code 3",),
    code=3,
    shape=PAIR,
)
DISK = tuple(
    failed(
        name,
        EVICTION,
        Reason.EVICTED,
        pod(0, "Failed", {"terminated": LOST}, reason="Evicted", message=told),
        says=("was evicted for what it used itself", told.strip()),
        code=137,
    )
    for name, told in (
        (
            "the pod's scratch space is over its limit",
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi. ",
        ),
        ("the container's is", 'Container main exceeded its local ephemeral storage limit "10Gi". '),
        ("a volume in memory is", 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi". '),
    )
)

LIMITS = (
    Situation(
        "the image can't be pulled until the time for starting is up",
        KUBERNETES + "pkg/kubelet/images/types.go",
        (
            Scene(
                1,
                (
                    pod(
                        0,
                        "Pending",
                        waiting("ImagePullBackOff", 'Back-off pulling image "train:1"'),
                        made=-3600,
                    ),
                ),
                jobset=jobset(),
            ),
            Scene(2, (), jobset=None),
        ),
        Reason.PENDING_TIMEOUT,
        VerdictKind.FAILURE,
        ("spec.timeouts.pendingSeconds (3600)",),
        first=None,
        shape={"timeouts": {"pendingSeconds": 3600}},
        ran=False,
    ),
    Situation(
        "no node takes the pods until the time for starting is up",
        KUBERNETES + "pkg/scheduler/schedule_one.go",
        (
            Scene(1, (pod(0, "Pending", None, placed=False, made=-3600),), jobset=jobset()),
            Scene(2, (), jobset=None),
        ),
        Reason.PENDING_TIMEOUT,
        VerdictKind.FAILURE,
        ("not all hosts ran",),
        first=None,
        shape={"timeouts": {"pendingSeconds": 3600}},
        ran=False,
    ),
    Situation(
        "the attempt runs too long",
        E2E + "test_endings.py",
        (
            Scene(1, (pod(0, "Running", running()),), jobset=jobset()),
            Scene(3, (pod(0, "Failed", exited(143, after=2), deleted=1),), jobset=jobset()),
            Scene(4, (), jobset=None),
        ),
        Reason.ACTIVE_TIMEOUT,
        VerdictKind.FAILURE,
        ("spec.timeouts.activeSeconds (3600)",),
        first=None,
        shape={"timeouts": {"activeSeconds": 3600}},
    ),
    Situation(
        "all attempts together take too long",
        "made: no word of Kubernetes is in it",
        (
            Scene(1, (pod(0, "Running", running()),), jobset=jobset()),
            Scene(4, (), jobset=None),
        ),
        Reason.TOTAL_TIMEOUT,
        VerdictKind.FAILURE,
        ("spec.timeouts.totalSeconds (3600)",),
        first=None,
        shape={"timeouts": {"totalSeconds": 3600}},
    ),
    Situation(
        "all goes well",
        E2E + "test_gangs.py",
        (
            Scene(
                1,
                (pod(0, "Succeeded", exited(0)), pod(1, "Succeeded", exited(0, after=1))),
                jobset=jobset("Completed"),
            ),
        ),
        Reason.COMPLETED,
        VerdictKind.SUCCESS,
        ("all 2 hosts exited with code 0",),
        first=None,
        shape=PAIR,
    ),
)

SITUATIONS = (*EXITS, *MEMORY, TOOK, UNMADE, *DISK, *LIMITS)
