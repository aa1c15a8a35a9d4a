"""Building images: what the engine is asked to do, in which order, and what is said when it can't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.images import (
    IMAGES,
    BuildOptions,
    EngineError,
    ImageBuilder,
    build_command,
    export_command,
    find_engine,
    main,
    package_secrets,
    read_pip_settings,
)

OPTIONS = BuildOptions(tag="1")


class FakeEngine:
    """A program that notes how it is called, and fails when an argument is `fail`."""

    def __init__(self, folder: Path, name: str, *, fail: str = "\n") -> None:
        self.folder, self._calls = folder, folder / f"{name}.calls"
        program = folder / name
        program.write_text(
            "#!/bin/sh\n"
            f'for argument in "$@"; do [ "$argument" = "{fail}" ] && exit 3; done\n'
            f'echo "$@" >> {self._calls}\n'
            'for argument in "$@"; do case "$argument" in docker-archive:*) a="${argument#*:}"; '
            'echo tar > "${a%%:*}";; esac; done\n'
        )
        program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder)}


def test_images_are_named_by_registry_and_tag() -> None:
    assert OPTIONS.reference("fray-operator") == "fray-operator:1"
    assert BuildOptions(tag="1", registry="r.example/a/").reference("x") == "r.example/a/x:1"


def test_docker_builds_from_the_root_of_the_checkout_with_base_and_secrets() -> None:
    options = BuildOptions(tag="1", registry="r.example", base="python:3.13-slim", platform="linux/arm64")
    assert build_command("docker", IMAGES[0], options, {"pip": Path("/s/pip.conf")}) == [
        "docker",
        "build",
        "--build-arg=BASE=python:3.13-slim",
        "--secret=id=pip,src=/s/pip.conf",
        "--platform=linux/arm64",
        "--file=operator/Dockerfile",
        "--tag=r.example/fray-operator:1",
        ".",
    ]


def test_buildah_builds_the_same_and_keeps_layers() -> None:
    assert build_command("buildah", IMAGES[2], OPTIONS, {}) == [
        "buildah",
        "build",
        "--layers",
        "--network=host",
        "--build-arg=BASE=python:3.11-slim",
        "--build-arg=RUNTIME=fray-runtime:1",
        "--file=examples/digits/Dockerfile",
        "--tag=fray-digits:1",
        ".",
    ]


def test_an_image_is_built_after_the_one_it_is_built_from() -> None:
    seen: set[str] = set()
    for image in IMAGES:
        assert image.parent is None or image.parent in seen
        seen.add(image.name)


def test_archives_name_the_image() -> None:
    path = Path("/x.tar")
    assert export_command("docker", "a:1", path) == ["docker", "save", "--output=/x.tar", "a:1"]
    assert export_command("buildah", "a:1", path) == ["buildah", "push", "a:1", "docker-archive:/x.tar:a:1"]


def test_all_images_are_built_and_named(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path, "buildah")
    references = ImageBuilder("buildah", engine.environ).build(OPTIONS)
    assert references == {name: f"{name}:1" for name in ("fray-operator", "fray-runtime", "fray-digits")}
    assert [call.split("--file=")[1].split()[0] for call in engine.calls] == [i.dockerfile for i in IMAGES]


def test_an_archive_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path, "buildah")
    builder = ImageBuilder("buildah", engine.environ)
    assert builder.export("a:1", tmp_path / "a.tar").read_text() == "tar\n"
    failing = FakeEngine(tmp_path, "buildah", fail="push")
    with pytest.raises(EngineError, match="exit code 3"):
        ImageBuilder("buildah", failing.environ).export("b:1", tmp_path / "b.tar")
    assert sorted(path.name for path in tmp_path.glob("*.tar*")) == ["a.tar"]


def test_a_failed_build_is_told_with_its_command(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path, "buildah", fail="build")
    with pytest.raises(EngineError, match=r"`buildah build .*` failed with exit code 3"):
        ImageBuilder("buildah", engine.environ).build(OPTIONS)


def test_an_engine_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="docker is not installed"):
        ImageBuilder("docker", {"PATH": str(tmp_path), "HOME": str(tmp_path)}).push("a:1")


def test_docker_is_chosen_only_if_its_daemon_answers(tmp_path: Path) -> None:
    FakeEngine(tmp_path, "docker")
    buildah = FakeEngine(tmp_path, "buildah")
    assert find_engine(buildah.environ) == "docker"
    FakeEngine(tmp_path, "docker", fail="version")
    assert find_engine(buildah.environ) == "buildah"


def test_no_engine_at_all_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="start Docker, or install buildah"):
        find_engine({"PATH": str(tmp_path)})


def test_nothing_is_pushed_without_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(tmp_path, "buildah")
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    assert main(["--engine=buildah"]) == 0
    assert not [call for call in engine.calls if call.startswith("push")]


def test_a_registry_gets_every_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = FakeEngine(tmp_path, "buildah")
    for name, value in engine.environ.items():
        monkeypatch.setenv(name, value)
    assert main(["--engine=buildah", "--registry=r.example/x", "--tag=7"]) == 0
    expected = [f"r.example/x/{image.name}:7" for image in IMAGES]
    assert [call for call in engine.calls if call.startswith("push")] == [f"push {name}" for name in expected]
    assert capsys.readouterr().out.split() == expected


def test_faults_end_the_program_with_1_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("images: no container engine")


def test_pip_settings_come_from_files_and_the_environment_wins(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://a.example/50%25/simple\n"
        "extra_index_url =\n  https://b.example\n  https://c.example\n"
        "timeout = 5\n[install]\nindex-url = https://no.example\n"
    )
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(config), "PIP_TRUSTED_HOST": "a.example"}
    settings = read_pip_settings(environ)
    settings.pop("cert", None)  # this machine's own file may name one
    assert settings == {
        "index-url": "https://a.example/50%25/simple",
        "extra-index-url": "https://b.example https://c.example",
        "trusted-host": "a.example",
    }
    over = {**environ, "PIP_INDEX_URL": "https://z.example"}
    assert read_pip_settings(over)["index-url"] == "https://z.example"


def test_secrets_hold_the_settings_for_as_long_as_the_build_runs(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("PEM")
    environ = {"HOME": str(tmp_path), "PIP_CERT": str(authorities), "PIP_INDEX_URL": "https://a.example"}
    with package_secrets(environ) as secrets:
        assert secrets["certificates"] == authorities
        lines = secrets["pip"].read_text().splitlines()
        assert lines == ["[global]", "index-url = https://a.example", "cert = /run/secrets/certificates"]
        folder = secrets["pip"].parent
        assert folder.stat().st_mode & 0o077 == 0
    assert not folder.exists()


def test_authorities_that_are_not_there_are_not_asked_for(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PIP_CERT": str(tmp_path / "gone.pem"),
        "PIP_INDEX_URL": "https://a.example",
    }
    with package_secrets(environ) as secrets:
        assert set(secrets) == {"pip"}
        assert "cert" not in secrets["pip"].read_text()
