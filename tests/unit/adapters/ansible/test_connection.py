# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import environment, known_hosts_line, reach_host, ssh_arguments
from tests.unit.adapters.ansible.hosts import host

KNOWN, DOOR = Path("/state/known_hosts"), Path("/tmp/c/door")


@pytest.mark.parametrize(
    ("address", "port", "line"),
    [
        ("192.0.2.7", 22, "192.0.2.7 ssh-ed25519 QUJD\n"),
        ("192.0.2.7", 2022, "[192.0.2.7]:2022 ssh-ed25519 QUJD\n"),
        ("2001:db8::7", 22, "2001:db8::7 ssh-ed25519 QUJD\n"),
        ("2001:db8::7", 2022, "[2001:db8::7]:2022 ssh-ed25519 QUJD\n"),
    ],
)
def test_the_pinned_key_is_written_as_ssh_looks_it_up(address: str, port: int, line: str) -> None:
    assert known_hosts_line(host(address=address, port=port)) == line


def test_ssh_accepts_the_pinned_key_alone_and_asks_nothing() -> None:
    words = shlex.split(ssh_arguments(host(), KNOWN, DOOR))
    assert words[:2] == ["-F", "/dev/null"]
    assert {
        "StrictHostKeyChecking=yes",
        "UserKnownHostsFile=/state/known_hosts",
        "GlobalKnownHostsFile=/dev/null",
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "HostKeyAlgorithms=ssh-ed25519",
    } <= set(words)


def test_an_rsa_host_key_is_asked_for_with_sha2_signatures() -> None:
    words = shlex.split(ssh_arguments(host(host_key="ssh-rsa QUJD"), KNOWN, DOOR))
    assert "HostKeyAlgorithms=rsa-sha2-512,rsa-sha2-256" in words


@pytest.mark.parametrize(("user", "become"), [("root", False), ("ops", True)])
def test_anyone_but_root_uses_sudo(user: str, become: bool) -> None:
    assert reach_host(host(user=user), Path("/k"), "")["ansible_become"] is become


@pytest.mark.fault("F108")
def test_the_users_own_ansible_settings_path_and_locale_have_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "ANSIBLE_CONFIG", "ANSIBLE_ROLES_PATH", "ANSIBLE_HOST_KEY_CHECKING", "SSH_AUTH_SOCK", "PATH", "LANG", "LC_ALL",
        "LC_NUMERIC", "LANGUAGE",
    ):  # fmt: skip
        monkeypatch.setenv(name, "of-the-user")
    made = environment(Path("/s"), Path("/p/ansible.cfg"))
    assert "of-the-user" not in "".join(made.values())
    assert made["ANSIBLE_CONFIG"] == "/p/ansible.cfg"
    assert made["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert (made["LANG"], made["LC_ALL"]) == ("C.UTF-8", "C.UTF-8")
