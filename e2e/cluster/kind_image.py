"""The image of kind's nodes, made of Debian's packages and our own builds, for where none can be pulled.

It holds what kind's own has: the files of kind's repository, systemd, containerd, the programs of Kubernetes,
and the images of the control plane, which each node imports as it starts. Other are only the network of pods
(kindnet is no Go module) and the storage class, which has no provisioner.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.archive import Image, write_archive
from e2e.cluster.build import Binaries, build, cache_root, module_source
from e2e.cluster.command import run
from e2e.cluster.errors import CommandError
from e2e.cluster.layout import POD_NETWORK
from e2e.cluster.machine import install_packages, uplink_mtu
from e2e.cluster.node_config import build_cni_config
from e2e.cluster.toolchain import host_platform
from e2e.cluster.userland import fetch_busybox, list_applets
from e2e.cluster.versions import part_named

__all__ = ["provide_node_image"]

_NAME = "fray.test/kind-node"
_PAUSE_IMAGE = "registry.k8s.io/pause:3.10"
"""As kind's configuration of containerd names it."""
_NETWORK_IMAGE = "fray.test/kind-network:1"
_PROGRAMS = ("kubeadm", "kubectl", "kubelet", "crictl")
_CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
_PACKAGES = (
    "systemd conntrack iptables nftables iproute2 ethtool util-linux mount kmod bash ca-certificates curl jq"
    " procps containerd runc containernetworking-plugins"
)
_PLUGINS = ("host-local", "loopback", "portmap", "ptp")
_MANIFESTS = Path(__file__).parent / "manifests"
_DEBIAN_SECONDS = 1200.0

_IMPORT_UNIT = """\
[Unit]
Description=Import the images of Kubernetes
After=containerd.service
Requires=containerd.service
Before=kubelet.service
ConditionPathExists=!/var/lib/fray-images-imported

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/kind/bin/import-images.sh

[Install]
WantedBy=multi-user.target
"""
_IMPORT = """\
#!/bin/sh -eu
case "$(hostname)" in
  *control-plane*) set -- /kind/images/*/*.tar ;;
  *) set -- /kind/images/node/*.tar ;;
esac
for file in "$@"; do ctr -n k8s.io images import "$file"; done
touch /var/lib/fray-images-imported
"""
_STORAGE = """\
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
"""


def provide_node_image(progress: Callable[[str], None]) -> str:
    """The name of the image that kind starts nodes from; the engine has it afterwards.

    Made within five minutes where the programs are built, and taken again as long as neither a version nor
    this module has changed. Raises ClusterError.
    """
    programs = build((*_PROGRAMS, *_CONTROL_PLANE, "coredns", "kube-proxy"), progress=progress)
    name = f"{_NAME}:{part_named('kubernetes').version}-{_fingerprint(programs)}"
    try:
        run(["docker", "image", "inspect", name])
    except CommandError:
        progress(f"making {name}, the image of the nodes (about 5 minutes)")
        install_packages({"debootstrap": "debootstrap"}, progress)
        with tempfile.TemporaryDirectory(prefix="fray-kind-image-", dir=cache_root()) as folder:
            root = Path(folder) / "root"
            _make_debian(root)
            _add_kind(root)
            _add_programs(root, programs)
            _add_images(root, programs, fetch_busybox(progress))
            _import(root, name)
    return name


def _fingerprint(programs: Binaries) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update((_MANIFESTS / "kind_network.yaml").read_bytes())
    for path in programs.values():
        digest.update(str(path.relative_to(cache_root())).encode())
    return digest.hexdigest()[:8]


def _make_debian(root: Path) -> None:
    packages = ",".join(_PACKAGES.split())
    run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(root)],
        timeout=_DEBIAN_SECONDS,
    )
    shutil.rmtree(root / "var/cache/apt")
    shutil.rmtree(root / "var/lib/apt/lists")


def _add_kind(root: Path) -> None:
    """Do what the Dockerfile of kind's base image does; source: images/base/Dockerfile of kind."""
    files = module_source("kind") / "images/base/files"
    shutil.copytree(files, root, dirs_exist_ok=True, copy_function=_copy_readable)
    (root / "kind/bin/import-images.sh").write_text(_IMPORT)
    for script in (*(root / "usr/local/bin").iterdir(), *(root / "kind/bin").iterdir()):
        script.chmod(0o755)
    for pattern in (
        "lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
        "lib/systemd/system/multi-user.target.wants/*",
        "etc/systemd/system/*.wants/*",
        "lib/systemd/system/local-fs.target.wants/*",
        "lib/systemd/system/sockets.target.wants/*udev*",
        "lib/systemd/system/sockets.target.wants/*initctl*",
        "lib/systemd/system/basic.target.wants/*",
    ):
        for path in root.glob(pattern):
            path.unlink()
    with (root / "etc/systemd/journald.conf").open("a") as file:
        file.write("ReadKMsg=no\n")
    (root / "sbin/init").unlink(missing_ok=True)
    (root / "sbin/init").symlink_to("/lib/systemd/systemd")
    (root / "etc/systemd/system/fray-images.service").write_text(_IMPORT_UNIT)
    services = ("kubelet", "containerd", "undo-mount-hacks", "fray-images")
    run(["systemctl", f"--root={root}", "enable", *(f"{name}.service" for name in services)])
    run(["systemctl", f"--root={root}", "mask", "systemd-binfmt.service"])
    (root / "etc/kubernetes/manifests").mkdir(parents=True)
    spec = run(["chroot", str(root), "sh", "-c", "ctr oci spec | jq 'del(.process.rlimits)'"])
    (root / "etc/containerd/cri-base.json").write_text(spec)
    settings = root / "etc/containerd/config.toml"
    text = settings.read_text().replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    settings.write_text(text)
    unit = root / "etc/systemd/system/containerd.service"
    unit.write_text(unit.read_text().replace("/usr/local/bin/containerd", "/usr/bin/containerd"))


def _add_programs(root: Path, programs: Binaries) -> None:
    for name in _PROGRAMS:
        _copy_executable(programs[name], root / "usr/bin" / name)
    plugins = root / "opt/cni/bin"
    plugins.mkdir(parents=True)
    for name in _PLUGINS:
        _copy_executable(root / "usr/lib/cni" / name, plugins / name)
    (root / "kind/version").write_text(part_named("kubernetes").version)
    manifests = root / "kind/manifests"
    manifests.mkdir()
    network = (_MANIFESTS / "kind_network.yaml").read_text(encoding="utf-8")
    network = network.replace("IMAGE", _NETWORK_IMAGE).replace("POD_NETWORK", POD_NETWORK)
    (manifests / "default-cni.yaml").write_text(network)
    (manifests / "default-storage.yaml").write_text(_STORAGE)


def _add_images(root: Path, programs: Binaries, busybox: Path) -> None:
    """Write the archives that nodes import: of the images that kubeadm names, for those who run them."""
    listing = ["config", "images", "list", f"--kubernetes-version={part_named('kubernetes').version}"]
    names = {_last(name): name for name in run([str(programs["kubeadm"]), *listing]).split()}
    shell = {"/bin/busybox": busybox}
    applets = {f"/bin/{name}": "busybox" for name in list_applets(busybox)}
    rules = _iptables(root)
    settings = root / "etc/fray-network.json"
    settings.write_text(json.dumps(build_cni_config("SUBNET", mtu=uplink_mtu())))
    tables = {f"/usr/sbin/{name}": "xtables-nft-multi" for name in _IPTABLES}
    images = [
        ("control-plane", Image(name=names[each], files=_program(programs[each]), entrypoint=[each]))
        for each in _CONTROL_PLANE
    ]
    images += [
        (
            "node",
            Image(name=names["coredns"], files={"/coredns": programs["coredns"]}, entrypoint=["/coredns"]),
        ),
        ("node", Image(name=_PAUSE_IMAGE, files=shell, entrypoint=["/bin/busybox", "sleep", "2147483647"])),
        (
            "node",
            Image(
                name=names["kube-proxy"],
                files=_program(programs["kube-proxy"]) | rules,
                links=tables,
                entrypoint=["kube-proxy"],
            ),
        ),
        (
            "node",
            Image(
                name=_NETWORK_IMAGE,
                files=_program(programs["kubectl"]) | rules | shell | {"/etc/fray-network.json": settings},
                links=tables | applets,
                entrypoint=["/bin/sh"],
            ),
        ),
    ]
    for place, image in images:
        folder = root / "kind/images" / place
        folder.mkdir(parents=True, exist_ok=True)
        write_archive(image, folder / f"{_last(image.name)}.tar", architecture=host_platform().goarch)


_IPTABLES = (
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
)


def _program(path: Path) -> dict[str, Path]:
    return {f"/usr/local/bin/{path.name}": path}


def _iptables(root: Path) -> dict[str, Path]:
    """The files of iptables in a Debian tree, with the libraries that they need, by their paths."""
    program = "/usr/sbin/xtables-nft-multi"
    extensions = [f"/{path.relative_to(root)}" for path in root.glob("usr/lib/*/xtables/*.so")]
    said = run(["chroot", str(root), "ldd", program, *extensions])
    needed = sorted(set(re.findall(r"(/\S+) \(0x", said)))
    paths = (program, *needed, *extensions)
    files = run(["chroot", str(root), "readlink", "-f", *paths]).split()
    return {path: root / file.lstrip("/") for path, file in zip(paths, files, strict=True)}


def _import(root: Path, name: str) -> None:
    """Give the engine a tree as an image."""
    changes = ("ENV container=docker", 'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]')
    words = ["docker", "import", *(f"--change={change}" for change in changes), "-", name]
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packing:
        done = subprocess.run(words, stdin=packing.stdout, capture_output=True, text=True, check=False)
    if done.returncode or packing.returncode:
        raise CommandError(tuple(words), done.returncode or packing.returncode, done.stderr)


def _last(name: str) -> str:
    return name.rpartition("/")[2].partition(":")[0]


def _copy_readable(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)


def _copy_executable(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o755)
