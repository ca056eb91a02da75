# SPDX-License-Identifier: Apache-2.0
"""The role that makes a guest a node of Kubernetes, with the real Ansible and programs that stand in."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, results_of, versions_of
from orchestrator.adapters.ansible.outcome import RunReport
from tests.playbooks.guest_with_packages import FirstRun, PackagedGuest
from tests.playbooks.test_guest_services import SYSTEMCTL

BOOTSTRAP = "kind: Config\nusers: [{user: {token: abcdef.0123456789abcdef}}]\n"
TENANTS = "version = 2\n# the tenant's\n"
CONFIG = "kind: KubeletConfiguration\ncgroupDriver: systemd\n"
LABELS = {"vgpuctl/gpu-model": "T4", "topology.kubernetes.io/zone": "here"}
PACKAGES = {"containerd", "kubelet", "nvidia-container-toolkit", "nvidia-device-plugin"}
_PROGRAMS = {
    "systemctl": SYSTEMCTL,
    "containerd": (
        '[ "$1" = --version ] && { echo "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20"; exit; }\n'
        '[ "$1 $3 $4" = "--config config dump" ] && [ ! -e "$GUEST/refuses" ] && cat "$2"'
    ),
    "kubelet": 'echo "Kubernetes v1.31.4"',
    "nvidia-device-plugin": 'echo "NVIDIA Device Plugin version 0.17.0"',
    "nvidia-ctk": 'echo "NVIDIA Container Toolkit CLI version 1.17.8"',
    "sysctl": (
        'case "$*" in "-n net.ipv4.ip_forward") cat "$GUEST/forwards" ;;\n'
        '"-w net.ipv4.ip_forward=1") echo 1 > "$GUEST/forwards" ;; *) exit 9 ;; esac'
    ),
}


def _guest(root: Path) -> PackagedGuest:
    made = PackagedGuest.made(root, **_PROGRAMS)
    made.put("sys/module/nvidia/version", "570.172.08\n")
    made.put("forwards", "0\n")
    for name in ("containerd", "kubelet"):
        made.put(f"units/{name}.service")
    for name in PACKAGES:
        made.put(f"offered/{name}", "1")
    made.put("bootstrap", BOOTSTRAP)
    made.put("config", CONFIG)
    return made


@pytest.fixture
def guest(tmp_path: Path) -> PackagedGuest:
    return _guest(tmp_path)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    """Of a guest whose containerd had a configuration before."""
    guest = _guest(tmp_path_factory.mktemp("node"))
    guest.put("etc/containerd/config.toml", TENANTS)
    return FirstRun.of(guest, _run(guest, "first"))


def _run(guest: PackagedGuest, name: str, *, files: bool = True, **said: object) -> RunReport:
    given: dict[str, object] = {"root": str(guest.root), "labels": LABELS, **said}
    if files:
        given |= {"bootstrap_file": str(guest.root / "bootstrap"), "kubelet_config_file": str(guest.root / "config")}
    return guest.run(
        "vgpuctl_guest_k8s_node", name, {f"vgpuctl_guest_k8s_node_{key}": one for key, one in given.items()}
    )


def _code(report: RunReport) -> str | None:
    error = guest_error_of(report, "default/train", GUEST)
    return None if error is None else error.code


def _restarts(guest: PackagedGuest) -> list[str]:
    told = (guest.root / "told").read_text().splitlines()
    return [line.removeprefix("restart ").removesuffix(".service") for line in told if line.startswith("restart ")]


def _arguments(guest: PackagedGuest) -> list[str]:
    unit = (guest.root / "etc/systemd/system/kubelet.service.d/90-vgpuctl.conf").read_text()
    return unit.partition("ExecStart=\nExecStart=")[2].replace("\\\n", " ").split()


def test_a_guest_becomes_a_node_and_a_second_run_changes_nothing(first_run: FirstRun) -> None:
    guest, first = first_run.again(), first_run.report
    assert _code(first) is None, first.output
    assert guest.installed == PACKAGES
    assert _arguments(guest) == [
        "/usr/bin/kubelet",
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--config=/var/lib/kubelet/config.yaml",
        "--node-labels=topology.kubernetes.io/zone=here,vgpuctl/gpu-model=T4",
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
    ]
    placed = guest.root / "etc/kubernetes/bootstrap-kubelet.conf"
    assert (placed.read_text(), placed.stat().st_mode & 0o777) == (BOOTSTRAP, 0o600)
    assert (guest.root / "var/lib/kubelet/config.yaml").read_text() == CONFIG
    assert "sharing" not in (guest.root / "etc/nvidia-device-plugin/config.yaml").read_text()
    assert (guest.root / "forwards").read_text() == "1\n"
    assert versions_of(first) == {
        "containerd": "1.6.20~ds1", "kubelet": "1.31.4", "device_plugin": "0.17.0", "container_toolkit": "1.17.8",
    }  # fmt: skip
    started = ["containerd", "kubelet", "vgpuctl-device-plugin"]
    assert _restarts(guest) == started
    again = _run(guest, "again", files=False)
    assert [one.state for one in results_of(again, at=0.0, operation="o")] == ["ok"], again.output
    assert _restarts(guest) == started
    assert placed.read_text() == BOOTSTRAP
    kept = [path.read_text() for path in (guest.root / "etc/containerd").iterdir() if path.name != "config.toml"]
    assert kept == [TENANTS]
    told = "".join(file.read_text(errors="replace") for file in guest.root.glob("*/artifacts/**/*") if file.is_file())
    assert "vgpuctl_guest" in repr(first)
    assert "abcdef" not in told + repr(first)


def test_other_labels_restart_the_kubelet_alone_and_shared_gpus_the_plugin_alone(first_run: FirstRun) -> None:
    guest = first_run.again()
    before = _restarts(guest)
    assert _code(_run(guest, "moved", files=False, labels={**LABELS, "vgpuctl/gpu-model": "L40S"})) is None
    assert [one for one in _arguments(guest) if "labels" in one] == [
        "--node-labels=topology.kubernetes.io/zone=here,vgpuctl/gpu-model=L40S"
    ]
    labels = {**LABELS, "vgpuctl/gpu-model": "L40S"}
    shared = _run(guest, "shared", files=False, labels=labels, gpu_replicas=4, mig_strategy="single")
    assert _code(shared) is None, shared.output
    written = (guest.root / "etc/nvidia-device-plugin/config.yaml").read_text()
    assert "  migStrategy: single\n" in written
    assert "      - name: nvidia.com/gpu\n        replicas: 4\n" in written
    assert _restarts(guest) == [*before, "kubelet", "vgpuctl-device-plugin"]


def test_a_configuration_that_containerd_refuses_takes_nobodys_place(guest: PackagedGuest) -> None:
    guest.put("etc/containerd/config.toml", "version = 2\n")
    guest.put("refuses")
    assert _code(_run(guest, "first")) == "guest.provisioning_failed"
    assert (guest.root / "etc/containerd/config.toml").read_text() == "version = 2\n"
    assert not (guest.root / "etc/kubernetes/bootstrap-kubelet.conf").exists()


@pytest.mark.parametrize(("lacks", "code"), [
    ("sys/module/nvidia/version", "guest.no_driver"), ("offered/nvidia-device-plugin", "guest.no_package"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name(guest: PackagedGuest, lacks: str, code: str) -> None:
    (guest.root / lacks).unlink()
    assert _code(_run(guest, "first")) == code
    assert not guest.installed


def test_a_program_that_does_not_answer_is_named(guest: PackagedGuest) -> None:
    guest.program("bin/kubelet", "echo broken >&2; exit 1")
    error = guest_error_of(_run(guest, "first"), "default/train", GUEST)
    assert error is not None
    assert (error.code, "kubelet --version does not answer: broken" in error.message) == ("guest.node_failed", True)
