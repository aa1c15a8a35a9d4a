"""docs/variables.md: every environment variable that Fray sets or reads (`make docs`).

Meanings are the docstrings of src/fray/vocabulary.py and of both classes of settings; which jobs get a
variable is what plans of all kinds of gangs hold.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fray.settings
import fray.vocabulary
import fray_operator.settings
from fray.plan.environment import build_environment
from fray.plan.gang import derive_gang
from fray.plan.names import Ports, build_loopback_addresses
from fray.runtime.container import THREAD_LIMITS
from fray.types.environment import COPIED_VARIABLES, DEFAULT_VARIABLES
from fray.wire.validation import validate_manifest
from tools.frayjob_page import escape_cell

HEAD = """\
<!-- Generated from src/fray/vocabulary.py and settings by `make docs`: change them there, not this page. -->
# Environment variables

## In the processes of a job

Your own value (`environment.env`, `--env`, `env_vars`) wins, but for `FRAY_*`. `fray explain` shows \
the values of a job with their reasons. GPU and CPU gangs are one slice.
"""
RANK = """
## Rank

The rank of a host is `FRAY_SLICE * FRAY_HOSTS_PER_SLICE + FRAY_HOST`, and the gang has \
`FRAY_NUM_SLICES * FRAY_HOSTS_PER_SLICE` hosts. In Python, `current_identity()` computes both in every job:

```python
from fray import current_identity

me = current_identity()
print(me.job, me.attempt, me.rank, me.world_size, me.is_leader)
print(me.slice, me.num_slices, me.host, me.hosts_per_slice, me.coordinator)
```

`coordinator` is FRAY_COORDINATOR_ADDRESS. Outside of jobs it is None, the rank is 0, and `world_size` is 1. \
Where only some of the variables are set, `IdentityError` names the one that is missing or wrong.
"""
OF_ENGINES = {
    "CUDA_VISIBLE_DEVICES": "Workers of a pool that offers GPUs: the GPUs of its tasks; empty: none. "
    "Where the pool's host has the variable, it offers these GPUs only.",
    "TPU_VISIBLE_CHIPS": "Workers of a pool that hold a part of their host's TPU chips: these chips. Where "
    "the pool's host has the variable, it offers these chips only.",
    "TPU_CHIPS_PER_HOST_BOUNDS": "With TPU_VISIBLE_CHIPS: the shape of 1, 2 or 4 chips, for libtpu.",
    "TPU_HOST_BOUNDS": "With TPU_VISIBLE_CHIPS: `1,1,1`, one host.",
    "JAX_PLATFORMS": "Workers of a pool without accelerators, where it is unset or empty: `cpu`.",
    **dict.fromkeys(
        THREAD_LIMITS,
        "Workers of a pool: the CPUs of the host for each worker, or those of a task that asks for several. "
        "Where you set one of these variables, Fray sets none.",
    ),
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "Nodes of Ray in pods: seconds for the tasks of a worker node "
    "that ends; 0 for other nodes.",
    "RAY_JOB_STOP_WAIT_TIME_S": "Jobs on a Ray cluster: the job's grace period and 15 seconds, after which "
    "Ray kills its processes.",
    "PYTHONPATH": "Processes of actors on this machine: `sys.path` of their job. Pods without Fray in their "
    "image: the directory of Fray's runtime is added behind your own value.",
    "PWD": "Pods of jobs with a workspace: its directory, where the program starts.",
}
KINDS: Mapping[str, Mapping[str, object]] = {
    "CPU": {},
    "GPU": {"gpu": {"type": "nvidia-l4"}},
    "TPU": {"tpu": {"type": "v4-8"}},
    "v5litepod": {"tpu": {"type": "v5litepod-4"}},
    "hosts": {"tpu": {"type": "v4-16"}},
    "slices": {"tpu": {"type": "v4-8", "multislice": "Enabled"}},
    "tpu7x": {"tpu": {"type": "tpu7x-16"}},
}
TPU = frozenset({"TPU", "v5litepod", "hosts", "slices", "tpu7x"})
WHERE = {
    frozenset(KINDS): "every job",
    TPU: "TPU",
    frozenset({"CPU", "GPU"}): "GPU and CPU",
    frozenset({"GPU"}): "GPU",
    frozenset({"hosts", "tpu7x"}): "TPU slices of several hosts",
    frozenset({"tpu7x"}): "tpu7 and tpu7x slices of several hosts",
    frozenset({"v5litepod"}): "v5litepod, v5p and v6e",
    frozenset({"slices"}): "several TPU slices that train together",
}
ACTORS = "pods of FrayActors"
ELSEWHERE = {
    "FRAY_RANK": "every job but several slices of several hosts",
    "FRAY_REPLICA_ID": "as FRAY_RANK",
    "FRAY_PORT_": "jobs with `ports`",
    "FRAY_JOB_UID": "callables, and jobs with workers",
    "FRAY_CLUSTER_SPEC": "jobs that a client launched",
    "FRAY_CLIENT_SPEC": "jobs that a client launched",
    "FRAY_POOL_HEAD": "processes that are to join a pool",
    "FRAY_POOL_KEY": "callables, pods of FrayActors, and processes that are to join a pool",
    "FRAY_POOL_OBJECTS": "processes that are to join a pool",
    "FRAY_POOL_METRICS": "the head of a job's pool",
    "FRAY_POOL_STATE": "the head of a job's pool",
    "FRAY_POOL_SOCKET": "hosts of jobs with workers of engine `fray`",
    **dict.fromkeys(
        ("FRAY_WORKERS_MIN", "FRAY_WORKERS_MAX", "FRAY_WORKERS_IDLE_SECONDS"),
        "the head of a pool",
    ),
    "FRAY_POD_IP": "jobs with workers, and pods of FrayActors",
    "FRAY_POD_NAME": "callables, and jobs with workers",
    "FRAY_POD_UID": "callables, and jobs with workers",
    "FRAY_WORKERS_ENGINE": "jobs with workers of engine `dask` or `ray`",
    **dict.fromkeys(
        ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"), "jobs with workers of engine `ray`"
    ),
    "DASK_": "jobs with workers of engine `dask`",
    "FRAY_WORKERS_SHAPE": "workers, and the head of a pool that asks for more",
    "JAX_PLATFORMS": "TPU, and jobs that a client launched",
    "JOB_COMPLETION_INDEX": "every job",
}
READ = {
    "FRAY_CLUSTER_SPEC": "Cluster that commands and `current_cluster()` use; `local` when unset.",
    "FRAY_CLIENT_SPEC": "The same for `fray.client`, before FRAY_CLUSTER_SPEC.",
    "FRAY_BACKEND": "Of an earlier API, and not used: a warning says to write FRAY_CLUSTER_SPEC.",
    "FRAY_PROGRESS": "Progress of tasks: 1 for lines, 0 for none; unset: a bar on terminals, in notebooks.",
    "FRAY_SPILL_DIR": "Where objects of a pool go that memory has no room for; else with temporary files.",
    "KUBECONFIG": "Kubeconfig of clusters; `~/.kube/config` when unset.",
    "KUBERNETES_SERVICE_HOST": "Set by the kubelet: in a pod, clients find the API server by it.",
    "XDG_STATE_HOME": "Directory that holds the default of FRAY_STATE_DIR; `~/.local/state` when unset.",
    "HOME": "Your home directory, which `~` means above.",
    "PATH": "Where programs are looked for.",
    "NO_COLOR": "Any text: output without colours.",
    "TERM": "`dumb` or empty: output as for a file.",
}
SETTING = re.compile(r"\s*\((?P<names>[A-Z][A-Z_]+(?: and _[A-Z]+)?)(?:[,;] (?P<rest>[^)]*))?\)")


def render_variables_page() -> str:
    """Return the page as code and settings are now."""
    copied = _join(f"`{name}`" for name in COPIED_VARIABLES)
    return "\n".join(
        [
            HEAD,
            _table("set in", _of_jobs()),
            "\n`create_environment()` sets these too, where your `env_vars` don't: "
            f"{_join(f'`{name}={value}`' for name, value in DEFAULT_VARIABLES.items())}. "
            f"It takes {copied} over from the process that calls it. "
            "Packages are installed with `UV_LINK_MODE=copy` and `UV_PYTHON_DOWNLOADS=never`, and with "
            "`UV_CACHE_DIR` in the job's `cacheVolume`.",
            RANK,
            "## Set by engines and clusters\n",
            "| variable | set in, and its value |\n|---|---|",
            *(f"| `{name}` | {meaning} |" for name, meaning in OF_ENGINES.items()),
            "\n## Read by commands and the client\n",
            _table("default", _of_settings(fray.settings.__file__, "Settings"), READ),
            "\n## Read by the operator\n",
            "The Helm chart sets each from a value.\n",
            _table("default", _of_settings(fray_operator.settings.__file__, "OperatorSettings")),
            "",
        ]
    )


def _join(words: Iterator[str]) -> str:
    return " and ".join(words)


def _table(column: str, rows: Iterator[tuple[str, str, str]], others: dict[str, str] | None = None) -> str:
    head = [f"| variable | {column} | meaning |", "|---|---|---|"]
    found = [*rows, *((name, "-", meaning) for name, meaning in (others or {}).items())]
    return "\n".join(
        [*head, *(f"| `{name}` | {escape_cell(a)} | {escape_cell(b)} |" for name, a, b in found)]
    )


def _of_jobs() -> Iterator[tuple[str, str, str]]:
    """Yield the variables of processes, which jobs have them, and what they mean."""
    kinds: dict[str, set[str]] = {}
    for kind, resources in KINDS.items():
        for name in _planned(resources, replicas=2 if kind == "slices" else 1):
            kinds.setdefault(name, set()).add(kind)
    meanings = dict(read_constants(Path(fray.vocabulary.__file__), prefix="ENV_"))
    if unknown := kinds.keys() - meanings.keys():
        raise ValueError(f"src/fray/vocabulary.py doesn't say what these are: {', '.join(sorted(unknown))}")
    for name, meaning in meanings.items():
        where = ACTORS if name.startswith("FRAY_ACTOR_") else ELSEWHERE.get(name)
        where = where or WHERE[frozenset(kinds[name])]
        yield (f"{name}<NAME>" if name.endswith("_") else name), where, meaning


def _planned(resources: Mapping[str, object], *, replicas: int) -> list[str]:
    spec = {"entrypoint": {"command": ["true"]}, "resources": resources, "replicas": replicas}
    job = validate_manifest(
        {"apiVersion": "fray.dev/v1alpha1", "kind": "FrayJob", "metadata": {"name": "job"}, "spec": spec}
    )
    addresses = build_loopback_addresses(Ports(1, 2, 3, 4))
    entries = build_environment(job, derive_gang(job.spec), addresses, attempt=1, metadata_server=True)
    return [entry.name for entry in entries]


def read_constants(path: Path, *, prefix: str) -> Iterator[tuple[Any, str]]:
    """Yield the value of each constant of a module whose name begins so, with its docstring.

    Raises `ValueError` for one that has no docstring.
    """
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.target).startswith(prefix):
            yield ast.literal_eval(node.value), _docstring(after, ast.unparse(node.target))


def _docstring(node: ast.stmt | None, name: str) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    raise ValueError(f"{name} has no docstring")


def _of_settings(path: str, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the variables that the fields of a class of settings name in their docstrings."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    for node, after in zip(found.body, [*found.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign):
            continue
        text = _docstring(after, ast.unparse(node.target))
        named = SETTING.search(text)
        if named is None:
            raise ValueError(f"the docstring of {ast.unparse(node.target)} names no variable: {text}")
        first, _, suffix = named["names"].partition(" and ")
        default = "-" if node.value is None else f"`{ast.literal_eval(node.value)}`".replace("`None`", "-")
        meaning = SETTING.sub(f" ({named['rest']})" if named["rest"] else "", text)
        yield first, default.replace("`()`", "-"), meaning
        if suffix:
            yield first.rpartition("_")[0] + suffix, default, meaning
