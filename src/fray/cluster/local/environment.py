"""The environment that local processes inherit: the user's own without traces of an outer job, or a new one.

What a job itself sets is `fray.plan.environment`'s; it is put over this.

A virtual environment of its own for each host of a job is made by shell commands that run before its
entrypoint, so what they print, how they fail and when they are ended is as with any other set-up command.
Beside what the job asks for there is the runtime of callables, at the end of the path: the job's own packages
win.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]

from fray import vocabulary
from fray.errors import InvalidRequestError, UnsupportedFeatureError
from fray.plan.environment import PROTECTED_PREFIX
from fray.types import EnvironmentConfig

__all__ = ["IsolatedEnv", "derive_base_environment", "find_uv", "select_own"]

TUNING = frozenset(
    {
        vocabulary.ENV_JAX_PLATFORMS,
        vocabulary.ENV_LIBTPU_INIT_ARGS,
        vocabulary.ENV_NCCL_DEBUG,
        vocabulary.ENV_NCCL_SOCKET_IFNAME,
    }
)
"""Variables that describe the machine, not a place in a gang."""
OF_RAY = frozenset({vocabulary.ENV_RAY_ADDRESS, vocabulary.ENV_RAY_AUTH_MODE, vocabulary.ENV_RAY_TOKEN_PATH})
"""Where the user's Ray is, or that of a job which runs on Ray: its processes launch jobs there."""
PLACE_IN_A_GANG = frozenset(
    value
    for name, value in vars(vocabulary).items()
    if name.startswith("ENV_") and name != "ENV_PORT_PREFIX" and value not in TUNING | OF_RAY
)
DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""As images for such jobs have it: Python holds back what it prints into a pipe."""

PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
FRAY = Path(__file__).parents[2]
"""The package `fray`."""
INHERITED = "PYTHONPATH PYTHONHOME CONDA_PREFIX"
"""Variables by which the packages of the launching program would come in again."""


def derive_base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `fray run` that its processes inherit.

    FRAY_* and what tells a process its place in a gang are left out: a `fray run` within a job would
    pass on the outer job's rank where the inner one sets none.
    """
    return {**DEFAULTS, **select_own(environ)}


def select_own(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that neither are Fray's nor tell a process its place in a gang."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(PROTECTED_PREFIX) and name not in PLACE_IN_A_GANG
    }


def find_uv(path: str) -> str:
    """Return the program uv, which makes virtual environments; `path` is the PATH to look in.

    Raises:
        UnsupportedFeatureError: it isn't there.
    """
    own = str(Path(sys.executable).parent)
    found = shutil.which("uv", path=f"{path}:{own}")
    if found is None:
        feature, reason = "local?use_isolated_env=true", "uv, which makes virtual environments, isn't in PATH"
        raise UnsupportedFeatureError(
            feature, reason, "Install it: `pip install uv`, or see docs.astral.sh/uv."
        )
    return found


@dataclass(frozen=True)
class IsolatedEnv:
    """What is installed into the environments of a job."""

    uv: str
    packages: tuple[str, ...]

    @classmethod
    def of(cls, environment: EnvironmentConfig, working_dir: str, *, uv: str, field: str) -> IsolatedEnv:
        """Return what an environment asks for.

        Raises:
            InvalidRequestError: it asks for extras of a workspace that is no project; `field` is where.
        """
        packages = list(environment.pip_packages)
        if environment.extras:
            if not any((Path(working_dir) / name).is_file() for name in PROJECT_FILES):
                remedy = "Give the directory of a Python project, or leave the extras out."
                problem = f"name extras of {working_dir}, which has no pyproject.toml"
                raise InvalidRequestError(field, problem, remedy)
            packages += ["--editable", f"{working_dir}[{','.join(environment.extras)}]"]
        return cls(uv, tuple(packages))

    def build_commands(self, folder: Path) -> tuple[str, ...]:
        """Return the commands, which make a folder for each host below `folder`, new for each attempt."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        runtime = [str(FRAY), cloudpickle.__path__[0]]
        commands = [
            f'venv={shlex.quote(str(folder))}/"$FRAY_ATTEMPT-$FRAY_SLICE-$FRAY_HOST"',
            f"unset {INHERITED}",
            f'{self._uv("venv", "--python", sys.executable)} "$venv"',
            'mkdir "$venv/fray-runtime"',
            f'ln -s {shlex.join(runtime)} "$venv/fray-runtime/"',
            f'echo "$venv/fray-runtime" > "$venv/lib/{version}/site-packages/zz-fray-runtime.pth"',
            'export PYTHONNOUSERSITE=1 VIRTUAL_ENV="$venv" PATH="$venv/bin:$PATH"',
        ]
        if self.packages:
            commands.append(f'{self._uv("pip", "install", *self.packages)} --python "$venv/bin/python"')
        return tuple(commands)

    def _uv(self, *arguments: str) -> str:
        return shlex.join([self.uv, "--quiet", "--no-progress", *arguments])
