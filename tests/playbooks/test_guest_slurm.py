# SPDX-License-Identifier: Apache-2.0
"""The role that makes a guest a node of Slurm, with the real Ansible and programs that stand in."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, results_of
from orchestrator.adapters.ansible.outcome import RunReport
from tests.playbooks.guest_with_packages import FirstRun, PackagedGuest
from tests.playbooks.test_guest_services import SYSTEMCTL

KEY = bytes(range(256)) * 4
CONF = "ClusterName=site\nSlurmctldHost=head\nGresTypes=gpu\nNodeName=train Gres=gpu:2\n"


def _guest(root: Path) -> PackagedGuest:
    made = PackagedGuest.made(root, systemctl=SYSTEMCTL)
    made.put("sys/module/nvidia/version", "570.172.08\n")
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        made.put(f"dev/{name}")
    for name in ("munge", "slurmd"):
        made.put(f"units/{name}.service")
        made.put(f"offered/{name}", "1")
    made.put("munge.b64", base64.encodebytes(KEY).decode())
    made.put("slurm.conf", CONF)
    return made


@pytest.fixture
def guest(tmp_path: Path) -> PackagedGuest:
    return _guest(tmp_path)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    guest = _guest(tmp_path_factory.mktemp("node"))
    return FirstRun.of(guest, _run(guest, "first", conf="slurm.conf", munge_key="munge.b64"))


def _run(guest: PackagedGuest, name: str, **files: str) -> RunReport:
    said = {f"vgpuctl_guest_slurm_node_{key}_file": str(guest.root / file) for key, file in files.items()}
    root = {"vgpuctl_guest_slurm_node_root": str(guest.root)}
    return guest.run("vgpuctl_guest_slurm_node", name, {**said, **root})


def _code(report: RunReport) -> str | None:
    error = guest_error_of(report, "default/train", GUEST)
    return None if error is None else error.code


def test_slurm_gets_the_devices_that_are_there_and_a_second_run_changes_nothing(first_run: FirstRun) -> None:
    guest, first = first_run.again(), first_run.report
    assert _code(first) is None, first.output
    gres = (guest.root / "etc/slurm/gres.conf").read_text().splitlines()[1:]
    assert gres == [f"Name=gpu File={guest.root}/dev/nvidia2", f"Name=gpu File={guest.root}/dev/nvidia10"]
    key = guest.root / "etc/munge/munge.key"
    assert (key.read_bytes(), key.stat().st_mode & 0o777) == (KEY, 0o400)
    assert (guest.root / "etc/slurm/slurm.conf").read_text() == CONF
    assert guest.installed == {"munge", "slurmd"}
    again = _run(guest, "again")
    assert [one.state for one in results_of(again, at=0.0, operation="o")] == ["ok"], again.output
    told = "".join(file.read_text(errors="replace") for file in guest.root.glob("*/artifacts/**/*") if file.is_file())
    assert base64.b64encode(KEY).decode()[:40] not in told + first.output


def test_a_key_that_a_run_left_to_somebody_else_is_the_daemons_again(first_run: FirstRun) -> None:
    guest = first_run.again()
    key = guest.root / "etc/munge/munge.key"
    os.chown(key.parent, 4001, 4001)
    assert _code(_run(guest, "again", munge_key="munge.b64")) is None
    assert (key.stat().st_uid, key.stat().st_gid, key.read_bytes()) == (4001, 4001, KEY)


def test_a_device_that_came_is_written_and_slurmd_restarted_alone(first_run: FirstRun) -> None:
    guest = first_run.again()
    guest.put("dev/nvidia11")
    assert _code(_run(guest, "again")) is None
    assert "nvidia11" in (guest.root / "etc/slurm/gres.conf").read_text()
    restarts = [line for line in (guest.root / "told").read_text().splitlines() if line.startswith("restart ")]
    assert restarts == ["restart munge.service", "restart slurmd.service", "restart slurmd.service"]


@pytest.mark.parametrize(("lacks", "code"), [
    ("sys/module/nvidia/version", "guest.no_driver"), ("offered/slurmd", "guest.no_package"),
])  # fmt: skip
def test_what_cannot_be_is_refused_by_name(guest: PackagedGuest, lacks: str, code: str) -> None:
    (guest.root / lacks).unlink()
    assert _code(_run(guest, "first", munge_key="munge.b64")) == code
    assert not guest.installed


@pytest.mark.parametrize("key", ["no base64 !", base64.b64encode(b"short").decode()])
def test_a_key_that_is_none_is_refused_before_anything_is_written(guest: PackagedGuest, key: str) -> None:
    guest.put("munge.b64", key)
    assert _code(_run(guest, "first", munge_key="munge.b64")) == "guest.slurm_failed"
    assert not (guest.root / "etc/slurm").exists()
