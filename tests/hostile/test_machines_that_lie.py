# SPDX-License-Identifier: Apache-2.0
"""Guests and hosts that answer Ansible with variables of ours: real ssh, the real ansible-playbook, our playbooks."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import VgpuctlError
from orchestrator.core.ovn import HostInOvn
from orchestrator.ports.overlay import SignedCertificate
from tests.fakes.lying_machine import (
    PLAYBOOKS,
    LyingMachine,
    host_that_lies,
    lying,
    provision_guest,
    take_host,
)

SECRET = "key of the database"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the controller."""
    path = tmp_path / "database_key"
    path.write_text(SECRET)
    return path


def _program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    path.chmod(0o755)
    return path


def _roles(tmp_path: Path) -> dict[str, object]:
    role = tmp_path / "role/tasks/main.yml"
    role.parent.mkdir(parents=True)
    role.write_text(f"- local_action: ansible.builtin.command touch {tmp_path}/started\n")
    return {"vgpuctl_guest_roles": [str(tmp_path / "role")]}


def _tries(secret: Path) -> Mapping[str, dict[str, object]]:
    roles = ["vgpuctl_guest_licence", "vgpuctl_guest_slurm_node", "vgpuctl_guest_k8s_node"]
    return {
        "files": {
            "vgpuctl_guest_roles": roles,
            "vgpuctl_guest_licence_token_file": str(secret),
            "vgpuctl_guest_slurm_node_munge_key_file": str(secret),
            "vgpuctl_guest_k8s_node_bootstrap_file": str(secret),
        },
        "programs": {
            "vgpuctl_guest_roles": roles,
            **{f"ansible_{name}_executable": str(_program(secret.parent)) for name in ("sftp", "ssh", "scp", "shell")},
        },
        "roles": _roles(secret.parent),
    }


@pytest.mark.parametrize("what", ["files", "programs", "roles"])
def test_a_guest_gets_no_file_of_the_controller_and_starts_nothing_there(
    tmp_path: Path, secret: Path, what: str
) -> None:
    run, heard = provision_guest(tmp_path, ("guest_check",), _tries(secret)[what])
    assert [result.role for result in run.results] == ["guest_check"]
    assert SECRET.encode() not in heard
    assert not (tmp_path / "started").exists()


def test_a_host_gets_the_agent_and_no_other_file_of_the_controller(tmp_path: Path, secret: Path) -> None:
    facts = {"vgpuctl_agent_package": str(secret), "vgpuctl_agent_sha256": hashlib.sha256(SECRET.encode()).hexdigest()}
    error, heard = take_host(tmp_path, facts)
    assert error is None
    assert b"YWdlbnQgYWdlbnQ" in heard
    assert b"a2V5IG9mIHRoZSBkYXRhYmFz" not in heard


OVN = HostInOvn(central=("192.0.2.41",), network="192.0.2.0/24")
REQUEST = "-----BEGIN CERTIFICATE REQUEST-----\nwhatever it says\n-----END CERTIFICATE REQUEST-----\n"


def _joining(tmp_path: Path, request: object) -> tuple[str | None, list[tuple[str, str]]]:
    """Code of the error, and whose requests were signed."""
    asked = list[tuple[str, str]]()

    def sign(name: str, said: str) -> SignedCertificate:
        asked.append((name, said))
        return SignedCertificate(certificate="its", central="central", hosts="hosts", ends_at=0.0)

    with host_that_lies(tmp_path, LyingMachine(tmp_path / "machine", lying({}, request=request))) as (made, target):
        try:
            replace(made, sign=sign).join_ovn(target, OVN, lambda _title: None)
        except VgpuctlError as error:
            return error.code, asked
    return None, asked


def test_a_host_has_a_certificate_of_its_own_name_alone_signed(tmp_path: Path) -> None:
    assert _joining(tmp_path, REQUEST) == (None, [("gpu-1", REQUEST)])


@pytest.mark.parametrize("request_", [{"name": "gpu-2"}, "x" * 5000, None], ids=["no text", "too long", "none"])
def test_nothing_else_that_a_host_wants_signed_reaches_who_signs(tmp_path: Path, request_: object) -> None:
    assert _joining(tmp_path, request_) == ("host.provisioning_unknown", [])


def test_what_joining_ovn_would_change_is_said_by_tasks_that_change_nothing(tmp_path: Path) -> None:
    machine = LyingMachine(tmp_path / "machine", lying({}, changed=True))
    with host_that_lies(tmp_path, machine) as (configurator, target):
        changes = configurator.ovn_changes(target, OVN)
    assert "Say its name, its address and where OVN is" in changes
    assert "Run it" not in changes  # of a service nothing is asked where its package may be missing


def test_a_machine_that_says_too_much_is_cut_off_and_little_of_it_is_kept(tmp_path: Path) -> None:
    run, _ = provision_guest(tmp_path, ("guest_check",), {"more": "x" * 20_000_000})
    assert run.error is not None
    assert run.error.code == "ansible.too_much"
    assert _kept(tmp_path) < 100_000


@pytest.mark.parametrize("more", [{"msg": "\x1b[2J" + "x" * 1_000_000, "failed": True}, {"stdout": "y" * 1_000_000}])
def test_what_is_kept_of_an_answer_is_short_and_harms_no_terminal(tmp_path: Path, more: dict[str, Any]) -> None:
    error, _ = take_host(tmp_path, {}, **more)
    assert _kept(tmp_path) < 100_000
    assert "\x1b" not in (tmp_path / "state/ansible/gpu-1.log").read_text()
    if error is not None:
        assert len(error.message) < 500
        assert error.message.isprintable()
        assert "\x1b" not in (error.details or "")
        assert len(error.details or "") < 10_000


def test_an_answer_that_is_too_deep_to_parse_ends_the_run_alone(tmp_path: Path) -> None:
    deep = json.loads("[" * 400 + "]" * 400)
    error, _ = take_host(tmp_path, {}, reboot=deep, readiness=deep)
    assert error is None or error.code.startswith("host.")


def _kept(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "state").rglob("*.log"))


def test_a_playbook_run_by_hand_without_our_settings_asks_no_host(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"vgpuctl_hosts": {"hosts": {"gpu-1": {"ansible_host": "192.0.2.1"}}}}))
    for playbook in ("prepare-host.yml", "install-agent.yml", "provision-host.yml", "remove-agent.yml"):
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", inventory, PLAYBOOKS / playbook],
            cwd=tmp_path, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode != 0
        assert "begin it with ANSIBLE_CONFIG=playbooks/ansible.cfg" in done.stdout + done.stderr
        assert "UNREACHABLE" not in done.stdout
