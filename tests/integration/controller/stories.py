"""Lives of jobs that play themselves, whatever happens to the operator, and how they end.

A story moves on only when the operator has reported the last move, so that every life of a story goes
through the same statuses and ends in the same state.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from e2e.chaos.oracle import STOPPED, SUSPENDED, Budgets, Way, exited, find_mismatch, predict
from fray import vocabulary as words
from tests.integration.controller.hands import Hands, Manifest, condition, eventually, rank

__all__ = [
    "EXPIRE",
    "ORPHAN",
    "RETRY",
    "STOP",
    "STORIES",
    "SUCCESS",
    "SUSPEND",
    "End",
    "Life",
    "Playable",
    "Story",
    "World",
    "build_parent_name",
    "make_plain",
    "play",
    "read_end",
    "read_ends",
    "read_whole_end",
]

PLAY_SECONDS = 900.0


@dataclass(frozen=True)
class Story:
    """What a job is, how its hosts end in each attempt, and what its user does when it first runs."""

    name: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    """Exit code of the last host by attempt, 0 by default; the others follow."""
    edit: Mapping[str, Any] | None = None
    """What the user changes while the first attempt runs."""
    parent: Story | None = None
    """The life of the job that launched it; it goes on once this one runs, until it has ended."""
    expires: bool = False
    """Whether the job is deleted after its end."""

    def ways(self, attempt: int) -> list[Way]:
        """Return the one way in which an attempt goes."""
        if attempt == 1 and (self.parent is not None or self.edit == {"stopped": True}):
            return [Way(STOPPED)]
        if attempt == 1 and self.edit == {"suspend": True}:
            return [Way(SUSPENDED)]
        return [Way(exited(self.exit_codes.get(attempt, 0)))]

    def begin(self, hands: Hands, name: str) -> Life:
        """Submit a job that lives through this."""
        return Life(hands, name, self)


SUCCESS = Story("success")
RETRY = Story("retry", {"replicas": 2, "retries": {"failures": 1}}, {1: 3})
STOP = Story("stop", edit={"stopped": True})
SUSPEND = Story("suspend", edit={"suspend": True})
EXPIRE = Story("expire", {"ttlSecondsAfterFinished": 0}, expires=True)
ORPHAN = Story("orphan", parent=Story("failure", exit_codes={1: 3}))
STORIES = (SUCCESS, RETRY, STOP, SUSPEND, EXPIRE, ORPHAN)


@dataclass(frozen=True)
class World:
    """All objects of a namespace at one moment, by name; pods of jobs by their JobSet's uid."""

    jobs: Mapping[str, Manifest]
    jobsets: Mapping[str, Manifest]
    pods: Mapping[str, list[Manifest]]
    actors: Mapping[str, Manifest]
    sets: Mapping[str, Manifest]
    """StatefulSets."""


@dataclass(frozen=True)
class End:
    """How a life ended, without what differs between two lives of a story: names, times, chance."""

    status: Manifest
    children: tuple[str, ...]
    """Names of what the operator made and nobody has removed."""
    events: frozenset[str]


class Playable(Protocol):
    """The life of a job or an actor."""

    name: str
    last_status: Manifest
    """The status of one that was deleted after its end."""

    def step(self, world: World) -> bool:
        """Make the next move, if it is time for it; return whether all is over."""

    def remove(self) -> None:
        """Remove everything of it, so that looking at what is left stays quick."""

    def has_told(self, end: End) -> bool:
        """Whether the last event was sent, which comes after the last status."""

    def judge(self, status: Manifest, children: list[str], events: list[str]) -> End:
        """Return how the life ended. Fails if that isn't as predicted, or anything was made or told twice."""


class Life:
    """One job that lives through a story. Every move may be made twice: what is looked at may be old."""

    def __init__(self, hands: Hands, name: str, story: Story) -> None:
        self._hands, self.name, self._story = hands, name, story
        self._seen: defaultdict[str, set[str]] = defaultdict(set)
        self._with_pods: set[str] = set()
        self.last_status: Manifest = {}
        """The status of a job that was deleted after its end."""
        self._parent: Life | None = None
        spec = dict(story.spec)
        if story.parent is not None:
            self._parent = Life(hands, build_parent_name(name), story.parent)
            spec["parent"] = {"name": self._parent.name, "root": self._parent.name}
        hands.submit(name, **spec)

    def step(self, world: World) -> bool:
        """Make the next move, if it is time for it; return whether the job has finished."""
        job = world.jobs.get(self.name, {"spec": {}})
        status = job.get("status", {})
        if self.last_status:
            return True
        if condition(job, "Finished").get("status") == "True":
            return self._leave(job) if self._story.expires else True
        if self._parent is not None and status.get("phase") == "Running":
            self._parent.step(world)
        if status.get("phase") == "Suspended" and job["spec"].get("suspend"):
            self._hands.edit(self.name, suspend=False)
        number = status.get("attempt")
        jobset = world.jobsets.get(f"{self.name}-a{number}")
        if jobset is not None:
            self._seen[jobset["metadata"]["name"]].add(jobset["metadata"]["uid"])
            pods = sorted(world.pods.get(jobset["metadata"]["uid"], []), key=rank)
            self._move(job, number, jobset, pods)
        return False

    def remove(self) -> None:
        """Remove everything of the job, so that looking at what is left stays quick."""
        hands, query = self._hands, {"labelSelector": f"{words.LABEL_JOB}={self.name}"}
        if self._parent is not None:
            self._parent.remove()
        if not self._story.expires:
            hands.delete_job(self.name)
        for collection in (hands.jobsets, f"{hands.core}/pods", f"{hands.core}/events"):
            answer = hands.api.request("DELETE", collection, {"gracePeriodSeconds": 0}, query=query)
            assert answer.ok, answer.body

    def has_told(self, end: End) -> bool:
        """Whether the last event was sent, which comes after the last status."""
        return any(f" {end.status['phase']}: " in event for event in end.events)

    def judge(self, status: Manifest, children: list[str], events: list[str]) -> End:
        """Return how the life ended. Fails if that isn't as predicted, or anything was made or told twice."""
        budgets = Budgets(self._story.spec.get("retries", {}).get("failures", 0), preemptions=0)
        assert find_mismatch(predict(budgets, self._story.ways), status) is None, status
        assert all(len(uids) == 1 for uids in self._seen.values()), (self.name, dict(self._seen))
        assert len(events) == len(set(events)), events
        return End(
            json.loads(make_plain(json.dumps(status), self.name)),
            tuple(make_plain(name, self.name) for name in children),
            frozenset(make_plain(event, self.name) for event in events),
        )

    def _leave(self, job: Manifest) -> bool:
        """Do what follows the deletion of a finished job; return whether it is gone."""
        if "deletionTimestamp" not in job["metadata"]:
            return False
        self.last_status = job["status"]
        self._hands.finish_job_deletion(job)
        return True

    def _move(self, job: Manifest, number: int, jobset: Manifest, pods: list[Manifest]) -> None:
        hands, status = self._hands, job["status"]
        if "deletionTimestamp" in jobset["metadata"]:
            hands.finish_deletion(jobset, pods)
        elif jobset.get("status", {}).get("conditions"):
            return  # it has ended, and the operator has yet to see it
        elif not pods:
            self._create_pods(jobset)
        elif any("nodeName" not in pod["spec"] for pod in pods):
            for pod in pods:
                if "nodeName" not in pod["spec"]:
                    hands.bind(pod)
        elif any(pod["status"]["phase"] == "Pending" for pod in pods):
            if condition(job, "Scheduled")["status"] == "True":
                for pod in pods:
                    if pod["status"]["phase"] == "Pending":
                        hands.run(pod)
        elif status["phase"] == "Running":
            self._leave_running(job, number, jobset, pods)

    def _create_pods(self, jobset: Manifest) -> None:
        """Create a JobSet's pods, once: what the API server has kept of them to list may be older."""
        uid = jobset["metadata"]["uid"]
        if uid not in self._with_pods:
            self._with_pods.add(uid)
            self._hands.create_pods(jobset)

    def _leave_running(self, job: Manifest, number: int, jobset: Manifest, pods: list[Manifest]) -> None:
        edit = self._story.edit
        if self._story.parent is not None:
            return  # it runs until it is stopped
        if edit is not None and number == 1:
            if any(job["spec"].get(key) != value for key, value in edit.items()):
                self._hands.edit(self.name, **edit)
            return
        code = self._story.exit_codes.get(number, 0)
        if code:
            self._hands.exit(pods[-1], code, message="the end of its log")
            self._hands.fail(jobset, pods[:-1])
        else:
            for pod in pods:
                self._hands.exit(pod, 0)
            self._hands.complete(jobset)


def build_parent_name(name: str) -> str:
    """Return the name of the job that launched the job of this name."""
    return f"{name}-parent"


def play(hands: Hands, lives: Iterable[Playable], *, keep_alive: Callable[[], None] = lambda: None) -> None:
    """Play all lives to their ends; `keep_alive` is called between moves, to restart a dead operator."""
    deadline = time.monotonic() + PLAY_SECONDS
    left = list(lives)
    while left:
        world = _look(hands)
        left = [life for life in left if not life.step(world)]
        keep_alive()
        known = {**world.jobs, **world.actors}
        told = {life.name: known.get(life.name, {}).get("status", {}).get("conditions") for life in left}
        assert time.monotonic() < deadline, f"these lives don't end: {told}"
        time.sleep(0.005 if len(left) < 10 else 0.05)


def _look(hands: Hands) -> World:
    pods = defaultdict(list)
    for pod in hands.list(f"{hands.core}/pods", cached=True):
        pods[pod["metadata"]["labels"].get(words.LABEL_JOBSET_UID)].append(pod)
    # FrayJobs and FrayActors last: their status must not be older than what the next move is decided on.
    jobsets, sets, jobs, actors = (
        {each["metadata"]["name"]: each for each in hands.list(collection, cached=True)}
        for collection in (hands.jobsets, hands.sets, hands.jobs, hands.actors)
    )
    return World(jobs, jobsets, pods, actors, sets)


def read_end(hands: Hands, life: Playable) -> End:
    """Return how a life ended. Fails if anything was made or told twice."""
    return read_ends(hands, [life])[life.name]


def read_whole_end(hands: Hands, life: Playable) -> End:
    """Return how a life ended once its last event was sent, which comes after the last status."""

    def told() -> End | None:
        end = read_end(hands, life)
        return end if life.has_told(end) else None

    end: End = eventually(told, told=lambda: read_end(hands, life))
    return end


def read_ends(hands: Hands, lives: Iterable[Playable]) -> dict[str, End]:
    """Return how lives ended, by the name of the job or actor. Fails if anything was made or told twice."""
    jobs = {job["metadata"]["name"]: job for job in hands.list(hands.jobs)}
    children, events = defaultdict(list), defaultdict(list)
    for collection in (hands.jobsets, hands.sets, hands.policies):
        for child in hands.list(collection):
            labels = child["metadata"]["labels"]
            owner = labels.get(words.LABEL_JOB) or labels[words.LABEL_ACTOR]
            children[owner].append(child["metadata"]["name"])
    for event in hands.list(f"{hands.core}/events"):
        told = f"{event['type']} {event['reason']}: {event['message']}"
        events[event["involvedObject"]["name"]].append(told)
    return {
        life.name: life.judge(
            life.last_status or jobs[life.name]["status"], sorted(children[life.name]), events[life.name]
        )
        for life in lives
    }


def make_plain(text: str, name: str) -> str:
    """Return a text without times, chance, and the name of the job or actor that it tells of."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(rf"{name}-a(\d+)(-slice-\d-\d)-[0-9a-f]{{5}}", r"JOB-a\1\2", text)
    return text.replace(name, "JOB")
