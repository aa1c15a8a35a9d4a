"""The job that a command line itself describes: `fray run -- python train.py`, `fray run train:main`."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from fray.errors import InvalidRequestError
from fray.types import Entrypoint, JobRequest, ResourceConfig, create_environment

__all__ = ["JobOptions", "build_request", "split_target"]

TARGET = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
INTERPRETER = re.compile(r"python[0-9.]*")
ILLEGAL = re.compile(r"[^a-z0-9]+")
FALLBACK_NAME = "job"
NAME_LENGTH = 40


@dataclass(frozen=True)
class JobOptions:
    """The options that describe a job that has no file; what is None is left to the defaults.

    `gpu` is a type, or a type and how many of it a host has: `H100:8`. `env` are texts `NAME=VALUE`, or
    `NAME` for the variable of this process.
    """

    name: str | None = None
    tpu: str | None = None
    gpu: str | None = None
    cpu: str | None = None
    memory: str | None = None
    replicas: int | None = None
    image: str | None = None
    env: tuple[str, ...] = field(default=(), repr=False)
    retries: int = 0

    @property
    def given(self) -> tuple[str, ...]:
        """The options that only a job without a file can have, as they were written."""
        values = {
            "--tpu": self.tpu,
            "--gpu": self.gpu,
            "--cpu": self.cpu,
            "--memory": self.memory,
            "--replicas": self.replicas,
            "--image": self.image,
            "--env": self.env or None,
            "--retries": self.retries or None,
        }
        return tuple(name for name, value in values.items() if value is not None)


def build_request(words: Sequence[str], options: JobOptions, *, environ: dict[str, str]) -> JobRequest:
    """Return the job that words of a command line mean: a program, or a function and its arguments.

    Raises:
        RequestError: An option means nothing, or the function can't be had.
    """
    target = split_target(words[0])
    if target is None:
        _check_program(words, environ)
        entrypoint = Entrypoint.from_command(list(words))
        name = _name_of_program(words)
    else:
        entrypoint = Entrypoint.from_callable(_import_function(*target), list(words[1:]))
        name = ".".join(target)
    return JobRequest(
        name=options.name or _shorten(name),
        entrypoint=entrypoint,
        resources=_resources(options),
        environment=create_environment(env_vars=_variables(options.env, environ)),
        max_retries_failure=options.retries,
    )


def _check_program(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Refuse a script of Python that would be taken for a program, though it is none that can be started."""
    script = words[0]
    if (
        script.endswith(".py")
        and Path(script).is_file()
        and not shutil.which(script, path=environ.get("PATH"))
    ):
        remedy = f"Name what runs it: `fray run -- {shlex.join(['python', *words])}`."
        raise InvalidRequestError(script, "is a file of Python, and no program", remedy)


def split_target(word: str) -> tuple[str, str] | None:
    """Return module and function of `package.module:function`; None for any other text."""
    found = TARGET.fullmatch(word)
    return None if found is None else (found[1], found[2])


def _import_function(module: str, name: str) -> Callable[..., Any]:
    where = f"{module}:{name}"
    # As `python -m` does: what a user calls a module is in the directory where they stand.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            remedy = f"Install {error.name} here: the function is imported before it is sent."
            raise InvalidRequestError(where, f"needs the module {error.name!r}", remedy) from error
        remedy = f"Start in the directory that has it (this is {here}), or install it; programs need `--`."
        raise InvalidRequestError(where, f"there is no module {error.name!r}", remedy) from error
    except Exception as error:  # the module's own code may raise anything
        remedy = f"`python -c 'import {module}'` shows where."
        problem = f"the module can't be imported: {type(error).__name__}: {error}"
        raise InvalidRequestError(where, problem, remedy) from error
    for part in name.split("."):
        if not hasattr(found, part):
            functions = [each for each, value in vars(found).items() if callable(value) and each[0] != "_"]
            remedy = f"It has: {', '.join(functions[:10]) or 'no functions'}."
            raise InvalidRequestError(where, f"{module} has no {name!r}", remedy)
        found = getattr(found, part)
    if not callable(found):
        remedy = "Name a function, such as train:main."
        raise InvalidRequestError(where, f"is of type {type(found).__name__}, which can't be called", remedy)
    return found  # type: ignore[no-any-return]


def _name_of_program(words: Sequence[str]) -> str:
    """Return what to call a program: a script by its own name rather than by its interpreter's."""
    program = PurePath(words[0]).name
    if INTERPRETER.fullmatch(program) and len(words) > 1:
        if words[1] == "-m" and len(words) > 2:
            return words[2]
        if not words[1].startswith("-"):
            return PurePath(words[1]).stem
    return program


def _shorten(name: str) -> str:
    return ILLEGAL.sub("-", name.lower())[:NAME_LENGTH].strip("-") or FALLBACK_NAME


def _resources(options: JobOptions) -> ResourceConfig:
    if options.tpu is not None and options.gpu is not None:
        raise InvalidRequestError("--tpu", "excludes --gpu", "Give one of them.")
    asked: dict[str, Any] = {"cpu": options.cpu, "ram": options.memory, "image": options.image}
    parts = {name: value for name, value in asked.items() if value is not None}
    if options.tpu is not None:
        return ResourceConfig.with_tpu(options.tpu, options.replicas or 1, **parts)
    if options.replicas is not None:
        parts["replicas"] = options.replicas
    if options.gpu is None:
        return ResourceConfig.with_cpu(**parts)
    kind, _, count = options.gpu.partition(":")
    if count and not (count.isascii() and count.isdecimal()):
        problem = f"is {options.gpu!r}, whose count {count!r} is no number"
        raise InvalidRequestError("--gpu", problem, "Write TYPE or TYPE:COUNT, such as H100:8.")
    return ResourceConfig.with_gpu(kind, int(count or 1), **parts)


def _variables(texts: Sequence[str], environ: dict[str, str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not given:
            if name not in environ:
                remedy = f"Write --env {name}=VALUE, or set it here."
                raise InvalidRequestError("--env", f"names {name!r}, which isn't set here", remedy)
            value = environ[name]
        found[name] = value
    return found
