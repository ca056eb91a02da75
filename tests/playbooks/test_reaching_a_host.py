# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh
import pytest

from orchestrator.adapters.ansible.configurator import AnsibleConfigurator
from orchestrator.core.errors import Fatal, Retryable, VgpuctlError
from orchestrator.core.hosts.host import Host
from tests.fakes.loopback_guest import listening
from tests.fakes.lying_machine import SIGN
from tests.playbooks.local_runs import ROOT
from tests.unit.adapters.ansible.hosts import host


def _agent(path: Path) -> str:
    path.write_bytes(b"agent")
    return hashlib.sha256(b"agent").hexdigest()


@dataclass(frozen=True)
class Door:
    """An SSH server on the loopback that knows nobody."""

    port: int
    host_key: str


class _NobodyKnown(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    key = asyncssh.generate_private_key("ssh-ed25519")

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.create_server(_NobodyKnown, "127.0.0.1", 0, server_host_keys=[key])

    words = key.export_public_key().decode().split()
    with listening(listen) as port:
        yield Door(port=port, host_key=f"{words[0]} {words[1]}")


@pytest.fixture
def configurator(tmp_path: Path) -> AnsibleConfigurator:
    key = tmp_path / "provisioning_key"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(key)
    key.chmod(0o600)
    return AnsibleConfigurator(
        site="site",
        state=tmp_path / "state",
        playbooks=ROOT / "playbooks",
        provisioning_key=lambda _host: key,
        authorized_keys=("ssh-ed25519 QUJD",),
        build_agent=_agent,
        sign=SIGN,
    )


def _enrolling(configurator: AnsibleConfigurator, target: Host) -> VgpuctlError:
    with pytest.raises(VgpuctlError) as caught:
        configurator.install_agent(target, (), lambda _title: None)
    return caught.value


def test_a_key_that_the_host_does_not_know_is_an_authentication_failure(
    door: Door, configurator: AnsibleConfigurator
) -> None:
    error = _enrolling(configurator, host(address="127.0.0.1", port=door.port, host_key=door.host_key))
    assert (type(error), error.code) == (Fatal, "host.auth_failed")


def test_another_host_key_than_the_pinned_one_stops_everything(door: Door, configurator: AnsibleConfigurator) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()
    error = _enrolling(configurator, host(address="127.0.0.1", port=door.port, host_key=f"{other[0]} {other[1]}"))
    assert (type(error), error.code) == (Fatal, "host.key_changed")


def test_a_closed_port_is_worth_another_try(configurator: AnsibleConfigurator) -> None:
    error = _enrolling(configurator, host(address="127.0.0.1", port=1))
    assert (type(error), error.code) == (Retryable, "host.unreachable")


def test_a_failed_run_leaves_its_output_and_nothing_else(configurator: AnsibleConfigurator) -> None:
    _enrolling(configurator, replace(host(address="127.0.0.1", port=1), name="gpu-9"))
    left = sorted(path.name for path in (configurator.state / "ansible").iterdir())
    assert left == ["gpu-9.log", "vgpuctl-agent.pyz"]
    assert "PLAY [Install agent]" in (configurator.state / "ansible/gpu-9.log").read_text()
