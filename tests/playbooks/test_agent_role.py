# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.outcome import RunReport, error_of
from orchestrator.core.errors import Conflict
from tests.playbooks.local_runs import ROLE, ROOT, run_local

SITE = "11111111-2222-3333-4444-555555555555"
KEY = "ssh-ed25519 AAAAC3Nza controller"
GOOD = {
    "architecture": "x86_64",
    "family": "debian",
    "python": {"version": [3, 11], "libvirt": True},
    "systemd": True,
    "libvirt_listens": True,
    "nvidia": ["0000:01:00.0"],
    "site": None,
    "volumes": [],
    "packages": [],
}
FINDINGS: dict[str, tuple[dict[str, object], dict[str, object], str | None]] = {
    "good": ({}, {}, None),
    "same-site": ({"site": SITE}, {}, None),
    "taken-over": ({"site": "other"}, {"vgpuctl_agent_take_over": True}, None),
    "gone-gpu-at-upgrade": ({"site": SITE}, {"vgpuctl_agent_gpus": ["0000:ff:00.0"]}, None),
    "other-site": ({"site": "other"}, {}, "host.other_site"),
    "another-architecture": ({"architecture": "aarch64"}, {}, "host.unsupported"),
    "no-systemd": ({"systemd": False}, {}, "host.unsupported"),
    "old-python": ({"python": {"version": [3, 9], "libvirt": True}}, {}, "host.unsupported"),
    "no-python": ({"python": {"version": [], "libvirt": False}}, {}, "host.unsupported"),
    "unknown-family": ({"family": "other", "python": {"version": [3, 11], "libvirt": False}}, {}, "host.unsupported"),
    "no-libvirt": ({"libvirt_listens": False}, {}, "host.libvirt_not_running"),
    "no-such-gpu": ({}, {"vgpuctl_agent_gpus": ["0000:ff:00.0"]}, "host.no_such_gpu"),
}


@pytest.mark.parametrize(
    ("playbook", "inventory"),
    [("install-agent.yml", "example"), ("remove-agent.yml", "example"), ("prepare-host.yml", "site")],
)
def test_the_playbooks_parse_with_the_example_inventories(playbook: str, inventory: str) -> None:
    checked = subprocess.run(
        [Path(sys.executable).with_name("ansible-playbook"), "--syntax-check", "-i", f"inventory/{inventory}",
         f"playbooks/{playbook}"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "ANSIBLE_CONFIG": "playbooks/ansible.cfg"},
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


@pytest.fixture(scope="module")
def role_variables() -> dict[str, object]:
    return {
        "vgpuctl_agent_site": SITE,
        "vgpuctl_agent_epoch": 1,
        "vgpuctl_agent_authorized_keys": [KEY],
        "vgpuctl_agent_package_installed": {"changed": True},
    }


@pytest.mark.fault("F29")
@pytest.mark.parametrize("name", sorted(FINDINGS))
def test_what_is_found_on_the_host_decides_whether_anything_is_installed(
    name: str, tmp_path: Path, role_variables: dict[str, object]
) -> None:
    found, given, code = FINDINGS[name]
    host = {**role_variables, "vgpuctl_agent_found": {"host": {**GOOD, **found}}, **given}
    error = error_of(run_local("check.yml", tmp_path / "s", {"gpu-1": host}), "gpu-1")
    assert (error.code if error else None) == code


def _written(tmp_path: Path, variables: dict[str, object], absent: list[str]) -> RunReport:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    own: dict[str, object] = {
        **variables,
        "vgpuctl_agent_found": {"host": GOOD},
        "root": str(root),
        "owner": pwd.getpwuid(os.getuid()).pw_name,
        "group": grp.getgrgid(os.getgid()).gr_name,
        "absent": variables.get("absent", absent),
        "program_sha256": variables.get("program_sha256", hashlib.sha256(bytes(range(4))).hexdigest()),
    }
    return run_local("files.yml", tmp_path / "s", {"gpu-1": own})


def _write(tmp_path: Path, variables: dict[str, object], absent: list[str]) -> list[str]:
    root = tmp_path / "root"
    error = error_of(_written(tmp_path, variables, absent), "gpu-1")
    assert error is None, error.details
    changed = json.loads((root / "changed.json").read_text())
    return [Path(path).relative_to(root).as_posix() for path in changed]


@contextmanager
def mounted(tmp_path: Path, point: Path) -> Iterator[None]:
    """A directory with a file that others have too, on the same file system."""
    pool = tmp_path / "pool"
    pool.mkdir()
    (pool / "disk").touch()
    subprocess.run(["mount", "--bind", pool, point], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", point], check=True)


def test_a_site_that_came_first_between_check_and_installation_keeps_the_host(
    tmp_path: Path, role_variables: dict[str, object]
) -> None:
    config = tmp_path / "root/etc/deep/config.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"site": "other"}')
    error = error_of(_written(tmp_path, role_variables, []), "gpu-1")
    assert (type(error), error.code if error else None) == (Conflict, "host.other_site")
    assert config.read_text() == '{"site": "other"}'
    assert not (tmp_path / "root/authorized_keys").exists()


def test_files_are_written_once_and_again_only_when_they_differ(
    tmp_path: Path, role_variables: dict[str, object]
) -> None:
    everything = [
        "etc/deep",
        "etc/deep/config.json",
        "authorized_keys",
        "vgpuctl-agent.service",
        "installed.json",
        "program",
    ]
    assert _write(tmp_path, role_variables, []) == everything
    assert _write(tmp_path, role_variables, []) == []
    (tmp_path / "root/authorized_keys").write_text("ssh-rsa stranger\n")
    (tmp_path / "root/etc/deep").chmod(0o777)
    assert _write(tmp_path, role_variables, []) == ["etc/deep", "authorized_keys"]


def test_a_program_that_was_changed_on_its_way_is_not_put_in_place(
    tmp_path: Path, role_variables: dict[str, object]
) -> None:
    report = _written(tmp_path, {**role_variables, "program_sha256": "0" * 64}, [])
    error = error_of(report, "gpu-1")
    assert error is not None
    assert error.code == "host.agent_damaged"
    assert [path.name for path in (tmp_path / "root").rglob("*") if path.name != "lock"] == []


def test_what_must_be_absent_is_removed_with_all_below_it(tmp_path: Path, role_variables: dict[str, object]) -> None:
    old = tmp_path / "root/old"
    (old / "below").mkdir(parents=True)
    assert "old" in _write(tmp_path, role_variables, [str(old)])
    assert not old.exists()
    assert "old" not in _write(tmp_path, role_variables, [str(old)])


@pytest.mark.parametrize("written", ["old", "old/", "link/old", "with blank"])
def test_nothing_is_removed_where_something_is_mounted_below_it(
    tmp_path: Path, role_variables: dict[str, object], written: str
) -> None:
    root = tmp_path / "root"
    point = root / written.removeprefix("link/") / "pools/fast"
    point.mkdir(parents=True)
    (root / "link").symlink_to(root)
    with mounted(tmp_path, point):
        error = error_of(_written(tmp_path, role_variables, [f"{root}/{written}"]), "gpu-1")
        assert f"unmount {point} first" in str(error)
        assert (point / "disk").exists()


def test_what_is_mounted_while_a_directory_is_removed_is_not_walked_into(tmp_path: Path) -> None:
    point = tmp_path / "old/pools/fast"
    point.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (tmp_path / "old/link").symlink_to(outside)
    program = (
        "import pathlib, sys, agent_installation as module\n"
        "class Module:\n"
        "    params = {}\n"
        "    def fail_json(self, msg): sys.exit(msg)\n"
        "module.Installation(Module()).remove(pathlib.Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", program, f"{tmp_path}/old/"]
    environment = {**os.environ, "PYTHONPATH": str(ROLE / "library")}
    with mounted(tmp_path, point):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert f"unmount {point} first" in done.stderr
        assert (point / "disk").exists()
    subprocess.run(command, env=environment, check=True)
    assert not (tmp_path / "old").exists()
    assert (outside / "kept").exists()


def test_a_host_with_volumes_that_no_vm_has_keeps_its_agent(tmp_path: Path) -> None:
    for file in ("volumes/vm.qcow2", "data/data.own.raw"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    arguments = {"python": sys.executable, "program": "/none", "storage": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, ROLE / "library/agent_preflight.py"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["host"]["volumes"] == ["vm.qcow2", "data.own.raw"]


def test_a_removal_leaves_nothing_of_ours_and_all_of_others(tmp_path: Path, role_variables: dict[str, object]) -> None:
    root = tmp_path / "root"
    drivers = ROOT / "playbooks/roles/vgpuctl_nvidia_host"
    installation = (drivers / "library/driver_installation.py").read_text()
    (directory,) = re.findall(
        r"^vgpuctl_nvidia_host_directory: /(.*)$", (drivers / "defaults/main.yml").read_text(), re.M
    )
    markers = re.findall(r'^(?:SWAPPED|LOCK) = "(.*)"$', installation, re.M)
    assert len(markers) == 2
    ours = [*markers, f"{directory}/580.65.06.run", "etc/vgpuctl-agent/config.json",
            "var/lib/vgpuctl-agent/ledger/ledger.sqlite", "var/lib/vgpuctl-relay/.ssh/authorized_keys",
            "usr/lib/vgpuctl-agent/vgpuctl-agent.pyz"]  # fmt: skip
    others = ["etc/apparmor.d/libvirt/libvirt-1", "var/lib/libvirt/images/disk", "run/other.lock"]
    for name in (*ours, *others):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    below = {**role_variables, "absent": "{{ vgpuctl_agent_files | map('regex_replace', '^', root) | list }}"}
    assert error_of(_written(tmp_path, below, []), "gpu-1") is None
    left = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    assert not [path for path in left if "vgpuctl" in path and path != "vgpuctl-agent.service"]
    assert set(others) <= left


def test_the_written_files_say_what_the_agent_and_sshd_need(tmp_path: Path, role_variables: dict[str, object]) -> None:
    _write(tmp_path, role_variables, [])
    root = tmp_path / "root"
    config = json.loads((root / "etc/deep/config.json").read_text())
    assert config == {
        "console_hours": 24, "console_mib": 8, "epoch": 1, "site": SITE, "storage": "/var/lib/vgpuctl-agent",
    }  # fmt: skip
    key = (root / "authorized_keys").read_text()
    assert key == f'restrict,command="/usr/bin/python3 -I /usr/lib/vgpuctl-agent/vgpuctl-agent.pyz relay" {KEY}\n'
    assert json.loads((root / "installed.json").read_text()) == {"packages": ["python3-libvirt"]}
    assert (root / "program").read_bytes() == bytes([0, 1, 2, 3])
    assert "{{" not in (root / "vgpuctl-agent.service").read_text()


def test_an_upgrade_leaves_the_processes_of_vms_alone() -> None:
    unit = (ROLE / "templates/vgpuctl-agent.service.j2").read_text()
    assert re.search(r"^KillMode=process$", unit, re.MULTILINE)
