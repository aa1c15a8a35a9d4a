"""One campaign: the jobs and the strikes of a seed on the test cluster, and the verdict on all of it.

The operator reaches the API server through a proxy of this process as long as it lasts. Whatever happens, the
hosts, the operator and the namespace are as before afterwards; what a killed run left, the next puts right.
"""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from e2e.chaos.actors import ActorUser
from e2e.chaos.agent import Agent, Target
from e2e.chaos.display import Row, Snapshot
from e2e.chaos.invariants import find_leaks
from e2e.chaos.judgement import judge, judge_actors
from e2e.chaos.plan import LANES, Kind, actors, jobs, strikes
from e2e.chaos.recorder import Recorder, collection_of
from e2e.chaos.storm import Storm
from e2e.chaos.user import User
from e2e.cluster import provider
from e2e.cluster.api import Api, ApiError
from e2e.cluster.command import await_condition
from e2e.cluster.credentials import AUTHORITY_FILE, MACHINE_FILES
from e2e.cluster.errors import MachineError
from e2e.cluster.kubeconfig import CONTEXT
from e2e.cluster.layout import BRIDGE_ADDRESS, Layout
from e2e.faulty_proxy import FaultyProxy
from e2e.job_namespace import JobNamespace, open_job_namespace
from e2e.release import Release
from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes import KubernetesCluster
from fray.vocabulary import FRAYACTOR_PLURAL, FRAYJOB_KIND, FRAYJOB_PLURAL

__all__ = ["Campaign", "Outcome", "run_campaign"]

TICK_SECONDS = 0.1
PATIENCE = 4
DRAIN_SECONDS = 300.0
"""How long the jobs may take to end once nothing is done to them any more."""
CLEAN_SECONDS = 180.0
VALUES = ("--set=leaseSeconds=8", "--set=backoff.capSeconds=4", "--set=avoidSeconds=15")
"""What makes a campaign shorter: a new leader comes sooner, and attempts wait less for time and for nodes."""
OBJECTS = (
    "jobsets",
    "statefulsets",
    "jobs",
    "pods",
    "services",
    "secrets",
    "networkpolicies",
    "configmaps",
)


@dataclass(frozen=True)
class Campaign:
    """What is to be run: the seed, for how long new harm is done, and the seconds between two strikes."""

    seed: int
    seconds: float
    every: float = 2.0
    least_jobs: int = 0
    least_strikes: int = 0
    """How much has to happen: a slow machine takes up to `PATIENCE` times the seconds for it."""

    @property
    def command(self) -> str:
        """What runs the same again."""
        return f"python -m e2e.chaos --seed {self.seed} --seconds {self.seconds:g} --every {self.every:g}"


@dataclass
class Outcome:
    """What came of a campaign; `wrong` says in words what must not be."""

    wrong: list[str] = field(default_factory=list)
    strikes: Counter[str] = field(default_factory=Counter)
    api_faults: Counter[str] = field(default_factory=Counter)
    ends: dict[Kind, Counter[str]] = field(default_factory=dict)
    verdicts: Counter[str] = field(default_factory=Counter)
    actors: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    """What callers of the actors met: answers, and errors by their type."""
    missed: int = 0
    """Strikes that found nothing to hit."""

    @property
    def jobs(self) -> int:
        """How many jobs there were."""
        return sum(sum(counts.values()) for counts in self.ends.values())


@dataclass(frozen=True)
class _Server:
    url: str
    authority: bytes


@contextmanager
def _open_proxy(layout: Layout, storm: Storm) -> Iterator[FaultyProxy]:
    """A proxy before the API server that pods reach, and that the cluster's authority vouches for."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*MACHINE_FILES)
    server = _Server(layout.url, AUTHORITY_FILE.read_bytes())
    with FaultyProxy(server, address=BRIDGE_ADDRESS, tls=tls, remember=False) as proxy:
        proxy.rule = storm
        yield proxy


@contextmanager
def _operator_behind(proxy: FaultyProxy, release: Release) -> Iterator[None]:
    """Let the operator take the proxy for its API server, which the kubelet tells each container by these."""
    address = urlsplit(proxy.url)
    told = {"KUBERNETES_SERVICE_HOST": address.hostname, "KUBERNETES_SERVICE_PORT": address.port}
    values = list(VALUES)
    for number, (name, value) in enumerate(told.items()):
        values += [f"--set=extraEnv[{number}].name={name}", f"--set-string=extraEnv[{number}].value={value}"]
    try:
        release.install(*values)
        yield
    finally:
        release.install()


def run_campaign(
    campaign: Campaign,
    release: Release,
    layout: Layout,
    *,
    show: Callable[[Snapshot], None] = lambda _: None,
) -> Outcome:
    """Run a campaign on the cluster that is up, with the chart installed or not. Raises ClusterError."""
    if "kill-program" not in provider.supported_faults():
        raise MachineError("this cluster's kubelets can't be killed", f"run it with {provider.SETTING}=local")
    storm = Storm(campaign.seed)
    with (
        _open_proxy(layout, storm) as proxy,
        _operator_behind(proxy, release),
        open_job_namespace(release.kubectl, release) as space,
        Recorder(api := provider.connect(), space.name, system=release.namespace) as recorder,
    ):
        planned_jobs = {lane.name: jobs(campaign.seed, lane) for lane in LANES}
        user = User(api, space.name, recorder, planned_jobs)
        actor_user = ActorUser(
            api, space.name, recorder, actors(campaign.seed), connect=lambda: _connect(space)
        )
        planned = strikes(campaign.seed, every=campaign.every)
        agent = Agent(Target(api, layout, space.name), recorder, proxy, storm, planned)
        run = _Run(campaign, user, actor_user, agent, storm, recorder)
        with actor_user:
            try:
                run.rage(show)
            finally:
                agent.give_back()
            run.drain(show)
        return run.conclude(_Objects(api, space.name), show)


def _connect(space: JobNamespace) -> KubernetesCluster:
    """The client of a program outside of the cluster."""
    spec = KubernetesSpec(namespace=space.name, context=CONTEXT)
    return KubernetesCluster(spec, environ={"KUBECONFIG": str(space.kubectl.kubeconfig)})


class _Run:
    def __init__(
        self,
        campaign: Campaign,
        user: User,
        actor_user: ActorUser,
        agent: Agent,
        storm: Storm,
        recorder: Recorder,
    ) -> None:
        self._campaign, self._user, self._agent = campaign, user, agent
        self._actor_user = actor_user
        self._storm, self._recorder = storm, recorder
        self._start = time.monotonic()

    def rage(self, show: Callable[[Snapshot], None]) -> None:
        """Submit jobs and do harm until the time is over."""
        while self._goes_on(time.monotonic() - self._start):
            self._user.tick(more=True)
            self._actor_user.tick(more=True)
            self._agent.tick(strike=True)
            self._pause("raging", show)

    def _goes_on(self, seconds: float) -> bool:
        campaign = self._campaign
        if seconds < campaign.seconds:
            return True
        much = sum(self._agent.counts.values()) >= campaign.least_strikes
        much = much and len(self._user.plans) >= campaign.least_jobs
        return not much and seconds < PATIENCE * campaign.seconds

    def drain(self, show: Callable[[Snapshot], None]) -> None:
        """Wait until all jobs and actors have ended, or too long."""
        end = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < end and (
            self._user.under_way
            or self._actor_user.under_way
            or not all(map(self._user.has_ended, self._user.plans))
        ):
            self._user.tick(more=False)
            self._actor_user.tick(more=False)
            self._agent.tick(strike=False)
            self._pause("draining", show)

    def conclude(self, objects: _Objects, show: Callable[[Snapshot], None]) -> Outcome:
        """Judge everything, remove the jobs, and judge what is left of them."""
        self._pause("judging", show)
        await_condition("everything was seen", self._recorder.has_caught_up, timeout=CLEAN_SECONDS)
        plans, records = self._user.plans, self._recorder.records
        outcome = Outcome(strikes=self._agent.counts, api_faults=self._storm.done)
        outcome.strikes["operator replaced"] = self._agent.nursed
        outcome.missed = sum(blowed.target is None for blowed in self._agent.log)
        outcome.wrong += judge(plans, records, objects.count_events())
        for plan in plans:
            last = records.last_job(plan.name)
            phase = "never seen" if last is None else f"{last.phase}, gone" if last.gone else str(last.phase)
            outcome.ends.setdefault(plan.kind, Counter())[phase] += 1
            outcome.verdicts.update(last.verdicts.values() if last is not None else [])
        outcome.wrong += judge_actors(self._actor_user.plans, records)
        outcome.wrong += self._actor_user.calls.wrong
        outcome.actors, outcome.calls = len(self._actor_user.plans), self._actor_user.calls.met
        outcome.wrong += objects.find_leaks()
        self._pause("removing", show)
        objects.remove_jobs()
        outcome.wrong += objects.find_leaks()
        # Or it would be the next one's trouble.
        health = provider.observe_health()
        outcome.wrong += [
            f"no longer true of the cluster: {what}" for what, holds in health.items() if not holds
        ]
        return outcome

    def _pause(self, stage: str, show: Callable[[Snapshot], None]) -> None:
        self._recorder.check()
        show(self._describe(stage))
        time.sleep(TICK_SECONDS)

    def _describe(self, stage: str) -> Snapshot:
        rows = []
        for lane, task in self._user.under_way.items():
            seen = self._recorder.job(task.plan.name)
            phase = "-" if seen is None else seen.phase or "-"
            age = time.time() - task.since
            rows.append(Row(lane, task.plan.name, phase, 0 if seen is None else seen.attempt, age))
        if (plan := self._actor_user.under_way) is not None:
            actor = self._recorder.actor(plan.name)
            phase = "-" if actor is None else "ready" if actor.ready else "not ready"
            rows.append(Row("actors", plan.name, phase, 0, 0.0))
        hit = [blowed for blowed in self._agent.log if blowed.target is not None]
        return Snapshot(
            seed=self._campaign.seed,
            stage=stage,
            seconds=time.monotonic() - self._start,
            rows=tuple(rows),
            strikes=self._agent.counts,
            api_faults=sum(self._storm.done.values()),
            jobs=len(self._user.plans),
            last_strike=f"{hit[-1].strike.blow.value} {hit[-1].target}" if hit else "-",
        )


@dataclass(frozen=True)
class _Objects:
    """Everything in the namespace of the jobs."""

    api: Api
    namespace: str

    def read(self, plural: str) -> list[dict[str, Any]]:
        answer = self.api.get(collection_of(self.namespace, plural))
        if not answer.ok:
            raise ApiError(f"{plural} can't be listed", answer)
        found: list[dict[str, Any]] = answer.body["items"]
        return found

    def count_events(self) -> Mapping[str, int]:
        about = [event["involvedObject"] for event in self.read("events")]
        return Counter(each["name"] for each in about if each["kind"] == FRAYJOB_KIND)

    def find_leaks(self) -> list[str]:
        """Say what is left, once the garbage collector has had its time."""
        end = time.monotonic() + CLEAN_SECONDS
        while True:
            kept = [*self.read(FRAYJOB_PLURAL), *self.read(FRAYACTOR_PLURAL)]
            finished = [each["metadata"]["name"] for each in kept]
            left = list(find_leaks({plural: self.read(plural) for plural in OBJECTS}, finished=finished))
            if not left or time.monotonic() > end:
                return left
            time.sleep(1.0)

    def remove_jobs(self) -> None:
        for plural in (FRAYJOB_PLURAL, FRAYACTOR_PLURAL):
            answer = self.api.delete(collection_of(self.namespace, plural))
            if not answer.ok:
                raise ApiError(f"{plural} can't be deleted", answer)
