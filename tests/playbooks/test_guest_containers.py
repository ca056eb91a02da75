# SPDX-License-Identifier: Apache-2.0
"""The role that puts Docker and its NVIDIA toolkit into guests, with the real Ansible and programs that stand in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, results_of, versions_of
from orchestrator.adapters.ansible.outcome import RunReport
from tests.playbooks.guest_with_packages import FirstRun, PackagedGuest

_CTK = (
    'echo "nvidia-ctk $*" >> "$GUEST/told"; case "$*" in\n'
    '--version) echo "NVIDIA Container Toolkit CLI version 1.17.8" ;;\n'
    '"cdi generate") [ ! -e "$GUEST/no-cdi" ] || { echo "no NVML" >&2; exit 1; }; cat "$GUEST/gpus" ;;\n'
    'runtime*) echo \'{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}\' > "${4#--config=}" ;;\nesac'
)
_DOCKER = (
    'case $1 in --version) echo "Docker version 26.1.5+dfsg1, build a72d7cd" ;;\n'
    'info) cat "$GUEST/knows" 2>/dev/null ;;\nesac'
)
_SYSTEMCTL = 'echo "systemctl $*" >> "$GUEST/restarts"; echo \'{"nvidia":{},"runc":{}}\' > "$GUEST/knows"'


def _guest(root: Path) -> PackagedGuest:
    made = PackagedGuest.made(root, **{"nvidia-ctk": _CTK, "docker": _DOCKER, "systemctl": _SYSTEMCTL})
    made.put("sys/module/nvidia/version", "570.172.08\n")
    made.put("gpus", "cdiVersion: 0.5.0\ndevices: [{name: all}]\n")
    made.put("offered/docker.io", "26.1.5+dfsg1-9")
    made.put("offered/nvidia-container-toolkit", "1.17.8-1")
    return made


@pytest.fixture
def guest(tmp_path: Path) -> PackagedGuest:
    return _guest(tmp_path)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    guest = _guest(tmp_path_factory.mktemp("containers"))
    return FirstRun.of(guest, _run(guest))


def _run(guest: PackagedGuest, name: str = "s") -> RunReport:
    return guest.run("vgpuctl_guest_container_toolkit", name, {"vgpuctl_guest_container_toolkit_root": str(guest.root)})


def _code(report: RunReport) -> str | None:
    error = guest_error_of(report, "default/train", GUEST)
    return None if error is None else error.code


def _restarts(guest: PackagedGuest) -> list[str]:
    return (guest.root / "restarts").read_text().splitlines()


def test_docker_knows_the_runtime_and_a_second_run_changes_and_restarts_nothing(first_run: FirstRun) -> None:
    guest, first = first_run.again(), first_run.report
    assert _code(first) is None, first.output
    assert guest.installed == {"docker.io", "nvidia-container-toolkit"}
    assert "nvidia" in json.loads((guest.root / "etc/docker/daemon.json").read_text())["runtimes"]
    assert (guest.root / "etc/cdi/nvidia.yaml").read_text() == (guest.root / "gpus").read_text()
    assert (versions_of(first)["docker"], versions_of(first)["container_toolkit"]) == ("26.1.5+dfsg1", "1.17.8")
    assert _restarts(guest) == ["systemctl restart docker.service"]
    (result,) = results_of(_run(guest, "again"), at=0.0, operation="o")
    assert (result.role, result.state) == ("guest_container_toolkit", "ok")
    assert len(_restarts(guest)) == 1


def test_other_gpus_are_written_without_a_restart_and_a_restart_that_was_missed_is_made(first_run: FirstRun) -> None:
    guest = first_run.again()
    guest.put("gpus", "cdiVersion: 0.5.0\ndevices: []\n")
    assert _code(_run(guest, "gpus-changed")) is None
    assert "devices: []" in (guest.root / "etc/cdi/nvidia.yaml").read_text()
    assert len(_restarts(guest)) == 1
    guest.put("knows", '{"runc":{}}')
    assert _code(_run(guest, "cut-off")) is None
    assert len(_restarts(guest)) == 2


@pytest.mark.parametrize(("lacks", "code"), [
    ("sys/module/nvidia/version", "guest.no_driver"), ("offered/nvidia-container-toolkit", "guest.no_package"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name_and_nothing_is_installed(
    guest: PackagedGuest, lacks: str, code: str
) -> None:
    (guest.root / lacks).unlink()
    assert _code(_run(guest)) == code
    assert not guest.installed


def test_a_toolkit_that_cannot_list_the_gpus_fails_the_role(guest: PackagedGuest) -> None:
    guest.put("no-cdi")
    failed = guest_error_of(_run(guest), "default/train", GUEST)
    assert failed is not None
    assert (failed.code, "no NVML" in failed.message) == ("guest.containers_failed", True)
