"""The job that a command line itself describes: `fray run -- python train.py`, `fray run train:main`."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, Final

from fray.accelerators import GpuHost, TpuSlice, lookup_gpu
from fray.cli.function_arguments import asks_for_help, describe_function, parse_arguments
from fray.cli.job_options import JobOptions
from fray.errors import FieldError, InvalidJobError, InvalidRequestError, UnsupportedFeatureError
from fray.types import Entrypoint, GpuConfig, JobRequest, ResourceConfig, TpuConfig, create_environment

__all__ = [
    "build_request",
    "find_help",
    "options_in_errors",
    "read_timeout",
    "read_variables",
    "split_target",
]

TARGET = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")
INTERPRETER = re.compile(r"python[0-9.]*")
ILLEGAL = re.compile(r"[^a-z0-9]+")
VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]{0,252}")
JOB_FILES = (".yaml", ".yml", ".json")
OPTIONS = {
    "JobRequest.name": "--name",
    "JobRequest.max_retries_failure": "--retries",
    "JobRequest.queue": "--queue",
    "JobRequest.timeout": "--timeout",
    "ResourceConfig.cpu": "--cpu",
    "ResourceConfig.ram": "--memory",
    "ResourceConfig.disk": "--disk",
    "ResourceConfig.replicas": "--replicas",
    "EnvironmentConfig.pip_packages": "--pip",
    "EnvironmentConfig.env_vars": "--env",
    "ResourceConfig.image": "--image",
    "metadata.name": "--name",
    "spec.environment.env": "--env",
    "spec.environment.image": "--image",
    "spec.environment.pipPackages": "--pip",
    "spec.queue.name": "--queue",
    "spec.replicas": "--replicas",
    "spec.resources.cpu": "--cpu",
    "spec.resources.disk": "--disk",
    "spec.resources.gpu": "--gpu",
    "spec.resources.memory": "--memory",
    "spec.resources.tpu": "--tpu",
    "spec.retries.failures": "--retries",
    "spec.timeouts.totalSeconds": "--timeout",
}
"""What is typed for a part of a request, or of the FrayJob that it becomes."""
DURATION: Final = re.compile(r"(?:([0-9]{1,7})h)?(?:([0-9]{1,7})m)?(?:([0-9]{1,7})s)?", re.ASCII)
FALLBACK_NAME = "job"
NAME_LENGTH = 40


def build_request(
    words: Sequence[str], options: JobOptions, *, environ: dict[str, str], directory: Path | None = None
) -> JobRequest:
    """Return the job that words of a command line mean: a program, or a function and its arguments.

    Args:
        words: The program with its arguments, or `module:function` with those of the function.
        options: What else is asked for.
        environ: The variables that `--env NAME` takes.
        directory: Where the program starts on this machine; None where an image has the program.

    Raises:
        RequestError: An option means nothing, the function can't be had, or it takes other arguments.
    """
    target = split_target(words[0])
    if target is None:
        _check_program(words, environ, directory)
        entrypoint = Entrypoint.from_command(list(words))
        name = _name_of_program(words)
    else:
        function = _import_function(*target)
        arguments = parse_arguments(function, words[1:], target=words[0])
        entrypoint = Entrypoint.from_callable(function, arguments.args, arguments.kwargs)
        name = ".".join(target)
    with options_in_errors():
        return JobRequest(
            name=options.name or _shorten(name),
            entrypoint=entrypoint,
            resources=_resources(options),
            environment=create_environment(
                env_vars=read_variables(options.env, environ), pip_packages=options.pip
            ),
            max_retries_failure=options.retries or 0,
            queue=options.queue,
            timeout=None if options.timeout is None else read_timeout(options.timeout),
        )


def find_help(words: Sequence[str]) -> str | None:
    """Return how to call the function, where the words ask for that: `train:main --help`.

    Raises:
        RequestError: The function can't be had.
    """
    target = split_target(words[0]) if words else None
    if target is None or "--help" not in words:
        return None
    function = _import_function(*target)
    return describe_function(function, target=words[0]) if asks_for_help(function, words[1:]) else None


@contextmanager
def options_in_errors() -> Iterator[None]:
    """Let an error name the option that was typed, rather than the part of a job that it becomes."""
    try:
        yield
    except InvalidRequestError as error:
        option = _find_option(error.field)
        if option is None:
            raise
        raise InvalidRequestError(option, error.problem, error.remedy) from error
    except UnsupportedFeatureError as error:
        option = _find_option(error.feature)
        if option is None:
            raise
        raise UnsupportedFeatureError(option, error.reason, error.alternative, error.detail) from error
    except InvalidJobError as error:
        problems = (FieldError(_find_option(each.path) or each.path, each.message) for each in error.problems)
        raise InvalidJobError(error.name, tuple(problems)) from error


def _find_option(path: str) -> str | None:
    """Return the option whose value stands there, or below; one of a list is one of several options here."""
    path = path.partition("[")[0]
    while path and path not in OPTIONS:
        path = path.rpartition(".")[0]
    return OPTIONS.get(path)


def read_timeout(text: str) -> int:
    """Return the seconds of `--timeout`: whole hours, minutes and seconds in this order, more than none.

    Raises:
        InvalidRequestError: It is no such duration.
    """
    match = DURATION.fullmatch(text)
    hours, minutes, seconds = (int(number or 0) for number in match.groups()) if match else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    if not total:
        raise InvalidRequestError("--timeout", f"is {text!r}, no duration", "Write 90s, 30m or 1h30m.")
    return total


def _check_program(words: Sequence[str], environ: Mapping[str, str], directory: Path | None) -> None:
    """Refuse a job file, and a script of Python, that would be taken for a program that can be started.

    On this machine, whose `directory` is given, a path must lead to a file.
    """
    script = words[0]
    if len(words) == 1 and " " in script and not script.startswith("/") and not Path(script).exists():
        remedy = f"Write its words one by one: `fray run -- {script}`."
        raise InvalidRequestError(script, "is a line of a shell, and no program", remedy)
    if directory is not None and "/" in script and not (directory / script).exists():
        problem = f"there is no such file (working directory {directory})"
        raise InvalidRequestError(script, problem, "Name a program that is there.")
    if not script.endswith((".py", *JOB_FILES)) or shutil.which(script, path=environ.get("PATH")):
        return
    is_there, where = Path(script).is_file(), f"there is no such file in {Path.cwd()}"
    if script.endswith(JOB_FILES):
        remedy = f"Give it as a file: `fray run -f {shlex.quote(script)}`."
        if not is_there:
            remedy = "Name one that is there: `fray run -f FILE`."
        raise InvalidRequestError(script, "is a file, and no program" if is_there else where, remedy)
    command = f"`fray run -- {shlex.join(['python', *words])}`"
    if is_there:
        remedy = f"Name what runs it: {command}."
        raise InvalidRequestError(script, "is a file of Python, and no program", remedy)
    if "/" not in script:  # a path may be one of the image
        raise InvalidRequestError(script, where, f"Start where it is, with what runs it: {command}.")


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
    asked: dict[str, Any] = {
        "cpu": options.cpu,
        "ram": options.memory,
        "disk": options.disk,
        "image": options.image,
        "count": options.replicas,
    }
    parts = {name: value for name, value in asked.items() if value is not None}
    if options.spot is not None:
        parts["spot" if options.spot else "preemptible"] = options.spot
    if options.tpu is not None:
        tpu = TpuConfig(options.tpu)
        return ResourceConfig(device=tpu, **{**_whole_host(tpu.slice), **parts})
    if options.gpu is None:
        return ResourceConfig.with_cpu(**parts)
    kind, _, count = options.gpu.partition(":")
    if count and not (count.isascii() and count.isdecimal()):
        problem = f"is {options.gpu!r}, whose count {count!r} is no number"
        raise InvalidRequestError("--gpu", problem, "Write TYPE or TYPE:COUNT, such as H100:8.")
    try:
        gpu = GpuConfig(kind, int(count or 1))
    except InvalidRequestError as error:
        problem = f"is {options.gpu!r}, whose count {error.problem}" if count else error.problem
        raise InvalidRequestError("--gpu", problem, error.remedy) from error
    host = None if gpu.gke_type is None else lookup_gpu(gpu.gke_type, count=gpu.count)
    return ResourceConfig(device=gpu, **{**_whole_host(host), **parts})


def _whole_host(host: TpuSlice | GpuHost | None) -> dict[str, Any]:
    """Return what a host has for a pod that is alone on it; nothing where its size isn't known."""
    if host is None or host.size is None:
        return {}
    return {"cpu": host.size.for_pods.cpu, "ram": f"{host.size.for_pods.memory_gb}G"}


def read_variables(texts: Sequence[str] | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `--env` gives, in its texts or from these; raises `InvalidRequestError`."""
    found = {}
    for text in texts or ():
        name, given, value = text.partition("=")
        if not VARIABLE.fullmatch(name):
            remedy = "Write --env NAME=VALUE; names have letters, digits, '_', '-' and '.', no digit first."
            raise InvalidRequestError("--env", f"names {name!r}, which is no name of a variable", remedy)
        if not given:
            if name not in environ:
                remedy = f"Write --env {name}=VALUE, or set it here."
                raise InvalidRequestError("--env", f"names {name!r}, which isn't set here", remedy)
            value = environ[name]
        found[name] = value
    return found
