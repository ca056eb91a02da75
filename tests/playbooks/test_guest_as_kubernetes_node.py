# SPDX-License-Identifier: Apache-2.0
"""The role that makes a guest a node of Kubernetes, with Debian's own containerd, dpkg and apt. Long: from the archive.

The guest is a bare Debian in a directory. What the operator brings (kubelet, device plugin, container toolkit, CUDA,
DCGM) are packages that this test builds: they install, tell their version and record how they were started. No cluster
is there for a kubelet to join. containerd runs in namespaces of its own and ends with them.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, results_of, versions_of
from tests.playbooks.guest_with_packages import PackagedGuest, bare_debian
from tests.playbooks.test_guest_services import SYSTEMCTL

LABELS = {
    "node.kubernetes.io/instance-type": "t4-2q", "topology.kubernetes.io/zone": "here", "vgpuctl/gpu-model": "T4",
    "vgpuctl/mig": "none", "vgpuctl/gpu-numa-nodes": "1", "vgpuctl/quota-devices": "8",
}  # fmt: skip
_TELLS = '#!/bin/sh\n[ "$1" = --version ] && {{ echo "{said}"; exit; }}\n{else_}\n'
_RECORDS = 'printf "%s\\n" "$0" "$@" >/srv/$(basename "$0").started; exec sleep infinity'
_STAND_INS: dict[tuple[str, str], dict[str, str]] = {
    ("kubelet", "1.31.4-1.1"): {"usr/bin/kubelet": _TELLS.format(said="Kubernetes v1.31.4", else_=_RECORDS)},
    ("nvidia-device-plugin", "0.17.0-1"): {
        "usr/bin/nvidia-device-plugin": _TELLS.format(said="NVIDIA Device Plugin version 0.17.0", else_=_RECORDS)
    },
    ("nvidia-container-toolkit", "1.17.8-1"): {
        "usr/bin/nvidia-ctk": _TELLS.format(said="NVIDIA Container Toolkit CLI version 1.17.8", else_="exit 9"),
        "usr/bin/nvidia-container-runtime": '#!/bin/sh\necho "$@" >>/srv/runtime.asked\nexec runc "$@"\n',
    },
    ("cuda-toolkit-12-8", "12.8.1-1"): {
        "usr/local/cuda-12.8/bin/nvcc": '#!/bin/sh\necho "Cuda compilation tools, release 12.8, V12.8.93"\n'
    },
    ("datacenter-gpu-manager-exporter", "4.4.0-1"): {"usr/bin/dcgm-exporter": "#!/bin/sh\nexit 0\n"},
}
"""By package and version: its programs."""
_IN_ROOT = 'exec chroot "$GUEST/root" {name} "$@"'
_PROGRAMS = {
    "systemctl": SYSTEMCTL,
    "sysctl": "echo 1",
    # Ansible's copy that is to be checked lies outside of the root.
    "containerd": (
        '[ "$1" != --config ] || { cp "$2" "$GUEST/root/srv/checked.toml"; shift 2; set -- --config /srv/checked.toml'
        ' "$@"; }\nexec chroot "$GUEST/root" containerd "$@"'
    ),
    **{
        name: _IN_ROOT.format(name=name)
        for name in ("apt-get", "apt-cache", "dpkg-query", "kubelet", "nvidia-device-plugin", "nvidia-ctk")
    },
}
TRIED = r"""
set -eu
mount -t proc proc /proc
mount -t tmpfs run /run
log() { tail -n 60 /srv/*.log; }
containerd >/srv/containerd.log 2>&1 &
daemons=$!
until_it ctr version
say() { echo "::$*"; }
ctr plugins ls >/srv/plugins
say "cri $(awk '$2 == "cri" { print $NF }' /srv/plugins)"
grep -o 'Start cri plugin with config.*' /srv/containerd.log >/srv/config
say "$(grep -o 'nvidia:{.*BinaryName:[^ ]*' /srv/config | grep -o 'BinaryName:[^ ]*' | tail -n 1)"
# As systemd would: the last ExecStart, with its lines joined.
start() { sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$1" | sed -n 's/^ExecStart=//p' | tail -n 1 | sh & }
start /etc/systemd/system/kubelet.service.d/90-vgpuctl.conf
start /etc/systemd/system/vgpuctl-device-plugin.service
until_it test -s /srv/kubelet.started -a -s /srv/nvidia-device-plugin.started
"""


def _package(into: Path, name: str, version: str, programs: dict[str, str]) -> str:
    """Its paragraph in the repository's list."""
    tree, file = into.parent / f"{name}.tree", into / f"{name}.deb"
    for path, text in programs.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
        (tree / path).chmod(0o755)
    control = (
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: vgpuctl\nDescription: stands in\n"
    )  # fmt: skip
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(control)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, file], check=True, stdout=subprocess.DEVNULL)
    content = file.read_bytes()
    return f"{control}Filename: ./{file.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"


@pytest.fixture
def guest(tmp_path: Path) -> PackagedGuest:
    root = tmp_path / "root"
    bare_debian(root, "containerd", "runc")
    made = PackagedGuest.made(tmp_path, **_PROGRAMS)
    (root / "srv/operator").mkdir()
    listed = [_package(root / "srv/operator", *key, programs) for key, programs in _STAND_INS.items()]
    made.put("root/srv/operator/Packages", "\n".join(listed))
    made.put("root/etc/apt/sources.list", "deb [trusted=yes] file:/srv/operator ./\n")
    for unit in ("containerd", "kubelet", "vgpuctl-device-plugin", "nvidia-dcgm-exporter"):
        made.put(f"units/{unit}.service")
    made.put("root/sys/module/nvidia/version", "570.172.08\n")
    made.put("bootstrap", "kind: Config\n")
    made.put("config", "kind: KubeletConfiguration\ncgroupDriver: systemd\n")
    return made


def _run(guest: PackagedGuest, name: str, role: str, **said: object) -> dict[str, str]:
    """What it told of versions; the second run has to find everything as it is."""
    given = {f"vgpuctl_{role}_{key}": one for key, one in {"root": str(guest.root / "root"), **said}.items()}
    report = guest.run(f"vgpuctl_{role}", name, given)
    assert guest_error_of(report, "default/train", GUEST) is None, report.output
    again = guest.run(f"vgpuctl_{role}", f"{name}-again", given)
    assert [one.state for one in results_of(again, at=0.0, operation="o")] == ["ok"], again.output
    return versions_of(report)


@pytest.mark.soak
def test_a_real_containerd_has_nvidias_runtime_and_the_kubelet_its_labels(guest: PackagedGuest) -> None:
    toolkits = [{"release": "12.8", "oldest_driver": "525.60.13", "row": "12"}]
    assert _run(guest, "cuda", "guest_cuda", toolkits=toolkits) == {"cuda_toolkit": "12.8"}
    assert _run(guest, "exporter", "guest_exporter") == {}
    versions = _run(
        guest, "node", "guest_k8s_node", labels=LABELS, gpu_replicas=2,
        bootstrap_file=str(guest.root / "bootstrap"), kubelet_config_file=str(guest.root / "config"),
    )  # fmt: skip
    assert re.fullmatch(r"1\.\d+\.\d+.*", versions.pop("containerd"))
    assert versions == {"kubelet": "1.31.4", "device_plugin": "0.17.0", "container_toolkit": "1.17.8"}

    root = guest.root / "root"
    told = guest.tries(TRIED, 600)
    assert told == ["cri ok", "BinaryName:/usr/bin/nvidia-container-runtime"], (root / "srv/containerd.log").read_text()
    kubelet = (root / "srv/kubelet.started").read_text().splitlines()
    (labels,) = [one.removeprefix("--node-labels=") for one in kubelet if one.startswith("--node-labels=")]
    assert dict(one.split("=") for one in labels.split(",")) == LABELS
    plugin = (root / "srv/nvidia-device-plugin.started").read_text().splitlines()
    assert plugin == ["/usr/bin/nvidia-device-plugin", "--config-file=/etc/nvidia-device-plugin/config.yaml"]
