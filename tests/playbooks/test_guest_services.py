# SPDX-License-Identifier: Apache-2.0
"""Roles that keep a service of a guest running, with the real Ansible and a systemctl that stands in."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, results_of
from orchestrator.adapters.ansible.outcome import RunReport
from tests.playbooks.guest_with_packages import PackagedGuest

TOKEN = "eyJhbGciOiJSUzI1NiJ9.TOKEN.{{ 7 * 7 }}"
SYSTEMCTL = (
    'echo "$1 $2" >> "$GUEST/told"; units="$GUEST/units"; case $1 in\n'
    'show) [ -e "$units/$2" ] || [ -e "$GUEST/etc/systemd/system/$2" ] || { echo LoadState=not-found; exit; }\n'
    '  echo LoadState=loaded; echo "UnitFileState=$(cat "$units/$2.enabled" 2>/dev/null || echo disabled)"\n'
    '  began=$(cat "$units/$2.began" 2>/dev/null || echo 0)\n'
    '  echo "ActiveEnterTimestampMonotonic=$began"; [ "$began" = 0 ] || echo ActiveState=active ;;\n'
    'enable) echo enabled > "$units/$2.enabled" ;;\n'
    'restart) [ ! -e "$GUEST/breaks" ] || { echo "Job failed" >&2; exit 1; }\n'
    f'  {sys.executable} -c "import time; print(int(time.monotonic() * 1e6))" > "$units/$2.began" ;;\n'
    "daemon-reload) ;;\n*) exit 9 ;;\nesac"
)
_SMI = (
    'case $1 in compute-policy) [ ! -e "$GUEST/no-slices" ] || { cat "$GUEST/no-slices"; exit 3; } ;;\n'
    '*) cat "$GUEST/smi" || exit 9 ;; esac'
)


@pytest.fixture
def guest(tmp_path: Path) -> PackagedGuest:
    made = PackagedGuest.made(tmp_path, **{
        "systemctl": SYSTEMCTL, "nvidia-smi": _SMI, "nvidia-cuda-mps-control": "exit 0",
    })  # fmt: skip
    made.put("sys/module/nvidia/version", "570.172.08\n")
    made.put("smi", "GPU 0: GRID T4-8C (UUID: GPU-1)\nGPU 1: GRID T4-8C (UUID: GPU-2)\n")
    made.put("units/nvidia-gridd.service")
    made.put("units/nvidia-dcgm-exporter.service")
    made.put("offered/datacenter-gpu-manager-exporter", "4.4.0-1")
    made.put("token", TOKEN)
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    return made


def _run(guest: PackagedGuest, role: str, name: str = "s", **variables: int | str) -> RunReport:
    own: dict[str, object] = {f"vgpuctl_{role}_root": str(guest.root)}
    return guest.run(f"vgpuctl_{role}", name, {**own, **{f"vgpuctl_{key}": one for key, one in variables.items()}})


def _state(report: RunReport) -> str:
    results = results_of(report, at=0.0, operation="o")
    return results[-1].state


def _code(report: RunReport) -> str | None:
    error = guest_error_of(report, "default/train", GUEST)
    return None if error is None else error.code


def _restarts(guest: PackagedGuest) -> int:
    return (guest.root / "told").read_text().count("restart ")


def test_a_token_is_put_there_for_root_alone_and_a_second_run_changes_nothing(guest: PackagedGuest) -> None:
    token = {"guest_licence_token_file": str(guest.root / "token"), "guest_licence_feature": "compute"}
    guest.put("etc/nvidia/gridd.conf", "ServerAddress=\n#FeatureType=0\n")
    first = _run(guest, "guest_licence", **token)
    assert _code(first) is None, first.output
    placed = guest.root / "etc/nvidia/ClientConfigToken/client_configuration_token_vgpuctl.tok"
    assert (placed.read_text(), placed.stat().st_mode & 0o777) == (TOKEN, 0o400)
    assert (guest.root / "etc/nvidia/gridd.conf").read_text() == "ServerAddress=\nFeatureType=4\n"
    assert _restarts(guest) == 1
    again = _run(guest, "guest_licence", "again", **token)
    assert (_state(again), _restarts(guest)) == ("ok", 1), again.output
    without = _run(guest, "guest_licence", "without", guest_licence_feature="compute")
    assert (_state(without), placed.read_text()) == ("ok", TOKEN)
    told = "".join(file.read_text(errors="replace") for file in guest.root.glob("*/artifacts/**/*") if file.is_file())
    assert "vgpuctl_guest" in repr(first)
    assert "TOKEN" not in told + repr(first)


def test_a_restart_that_was_missed_is_made_and_another_token_makes_one(guest: PackagedGuest) -> None:
    token = {"guest_licence_token_file": str(guest.root / "token")}
    guest.put("breaks")
    assert _code(_run(guest, "guest_licence", **token)) == "guest.service_failed"
    (guest.root / "breaks").unlink()
    assert _state(_run(guest, "guest_licence", "mended", **token)) == "changed"
    began = guest.root / "units/nvidia-gridd.service.began"
    first = began.read_text()
    guest.put("token", "another")
    assert _state(_run(guest, "guest_licence", "other", **token)) == "changed"
    assert int(began.read_text()) > int(first)


def test_clients_of_mps_have_limits_on_each_gpu(guest: PackagedGuest) -> None:
    limits: dict[str, Any] = {"guest_mps_thread_percentage": 25, "guest_mps_memory_mib": 2048}
    assert _code(_run(guest, "guest_mps", **limits)) is None
    unit = guest.root / "etc/systemd/system/vgpuctl-mps.service"
    assert "Environment=CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25\n" in unit.read_text()
    assert "Environment=CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2048M,1=2048M\n" in unit.read_text()
    assert _state(_run(guest, "guest_mps", "again", **limits)) == "ok"
    assert _state(_run(guest, "guest_mps", "other")) == "changed"
    assert "MEM_LIMIT" not in unit.read_text()
    assert _restarts(guest) == 2


def test_time_slices_are_set_at_each_boot_and_a_second_run_changes_nothing(guest: PackagedGuest) -> None:
    assert _code(_run(guest, "guest_time_slice", guest_time_slice_length="short")) is None
    unit = guest.root / "etc/systemd/system/vgpuctl-time-slice.service"
    assert "ExecStart=/usr/bin/env nvidia-smi compute-policy --set-timeslice=1\n" in unit.read_text()
    assert _state(_run(guest, "guest_time_slice", "again", guest_time_slice_length="short")) == "ok"
    assert _state(_run(guest, "guest_time_slice", "other")) == "changed"
    assert "--set-timeslice=0\n" in unit.read_text()
    assert _restarts(guest) == 2


def test_gpus_without_time_slices_are_left_as_they_are(guest: PackagedGuest) -> None:
    guest.put("no-slices", "Not Supported {{ 7 * 7 }}")
    error = guest_error_of(_run(guest, "guest_time_slice"), "default/train", GUEST)
    assert error is not None
    assert (error.code, "Not Supported {{ 7 * 7 }}" in error.message) == ("guest.no_time_slice", True)
    assert not (guest.root / "told").exists()


def test_the_exporter_answers_on_the_port_that_was_said(guest: PackagedGuest) -> None:
    assert _code(_run(guest, "guest_exporter", guest_exporter_port=9401)) is None
    assert guest.installed == {"datacenter-gpu-manager-exporter"}
    own = guest.root / "etc/systemd/system/nvidia-dcgm-exporter.service.d/vgpuctl.conf"
    assert own.read_text() == "[Service]\nEnvironment=DCGM_EXPORTER_LISTEN=:9401\n"
    assert _state(_run(guest, "guest_exporter", "again", guest_exporter_port=9401)) == "ok"
    assert _restarts(guest) == 1


@pytest.mark.parametrize(("role", "lacks", "code"), [
    ("guest_licence", "sys/module/nvidia/version", "guest.no_driver"),
    ("guest_licence", "units/nvidia-gridd.service", "guest.service_failed"),
    ("guest_mps", "smi", "guest.no_driver"),
    ("guest_time_slice", "sys/module/nvidia/version", "guest.no_driver"),
    ("guest_exporter", "sys/module/nvidia/version", "guest.no_driver"),
    ("guest_exporter", "offered/datacenter-gpu-manager-exporter", "guest.no_package"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name(guest: PackagedGuest, role: str, lacks: str, code: str) -> None:
    (guest.root / lacks).unlink()
    assert _code(_run(guest, role)) == code
    assert not guest.installed


def test_a_driver_without_mps_is_said_to_have_none(guest: PackagedGuest) -> None:
    (guest.root / "bin/nvidia-cuda-mps-control").unlink()
    assert not any(Path(where, "nvidia-cuda-mps-control").exists() for where in os.get_exec_path())
    assert _code(_run(guest, "guest_mps")) == "guest.no_mps"
