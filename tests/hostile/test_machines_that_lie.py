# SPDX-License-Identifier: Apache-2.0
"""Guests and hosts that answer Ansible with variables of ours: real ssh, the real ansible-playbook, our playbooks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.lying_machine import provision_guest, take_host

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
