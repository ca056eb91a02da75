# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import asyncssh
import pytest

from orchestrator.adapters.ansible.configurator import AnsibleConfigurator
from orchestrator.agent.build_zipapp import build_agent
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.hosts.host import Host, new_host
from tests.fakes.lying_machine import SIGN
from tests.lab.conftest import LabHost
from tests.playbooks.local_runs import ROOT

pytestmark = pytest.mark.lab

OURS = (
    "ls -d /usr/lib/vgpuctl-agent /etc/vgpuctl-agent /var/lib/vgpuctl-* /run/vgpuctl-agent* "
    "/etc/systemd/system/vgpuctl-agent.service /etc/systemd/system/multi-user.target.wants/vgpuctl-agent.service "
    "2>/dev/null; getent passwd vgpuctl-agent; getent group vgpuctl-agent; true"
)
STAMPS = (
    "stat -c '%n %Y %i' /usr/lib/vgpuctl-agent/* /etc/vgpuctl-agent/* /var/lib/vgpuctl-relay/.ssh/*; "
    "systemctl show --property MainPID,NRestarts vgpuctl-agent"
)


@dataclass(frozen=True)
class Role:
    """The role as the product runs it, against one lab host."""

    configurator: AnsibleConfigurator
    target: Host
    lab_host: LabHost

    def install(self, gpus: tuple[str, ...] = ()) -> None:
        self.configurator.install_agent(self.target, gpus, lambda _title: None)

    def remove(self) -> None:
        self.configurator.remove_agent(self.target, lambda _title: None)

    def of_site(self, site: str) -> Role:
        return replace(self, configurator=replace(self.configurator, site=site))


@pytest.fixture(scope="module")
def role(t4: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Role:
    state = tmp_path_factory.mktemp("role")
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()
    return Role(
        configurator=AnsibleConfigurator(
            site="role-test",
            state=state,
            playbooks=ROOT / "playbooks",
            provisioning_key=lambda _host: Path(t4.key_file),
            authorized_keys=(f"{key[0]} {key[1]}",),
            build_agent=lambda path: build_agent(path).sha256,
            sign=SIGN,
        ),
        target=new_host(
            t4.name,
            t4.address,
            t4.port,
            provisioning_user=t4.user,
            host_key=" ".join(t4.known_host_line.split()[1:3]),
        ),
        lab_host=t4,
    )


def _refused(change: Callable[[], None]) -> str:
    with pytest.raises((Conflict, Fatal)) as caught:
        change()
    return caught.value.code


def test_a_host_is_given_back_as_it_was(role: Role) -> None:
    assert role.lab_host.run(OURS) == ""
    packages = role.lab_host.run("dpkg-query -W")
    assert _refused(lambda: role.install(("0000:ff:1f.0",))) == "host.no_such_gpu"
    assert role.lab_host.run(OURS) == ""
    role.install()
    assert role.lab_host.run(OURS) != ""
    role.lab_host.run("setpriv --reuid vgpuctl-agent --clear-groups sleep 900 </dev/null >/dev/null 2>&1 &")
    role.remove()
    role.remove()
    assert role.lab_host.run(OURS) == ""
    assert role.lab_host.run("dpkg-query -W") == packages


@pytest.fixture(scope="module")
def installed(role: Role) -> Iterator[Role]:
    role.install()
    yield role
    role.remove()


def test_the_agent_runs_and_its_socket_is_for_its_account_alone(installed: Role) -> None:
    shown = installed.lab_host.run(
        "stat -c '%U %G %a' /run/vgpuctl-agent/agent.sock; systemctl is-enabled vgpuctl-agent"
    )
    assert shown.split() == ["root", "vgpuctl-agent", "660", "enabled"]


def test_a_second_run_changes_nothing_and_restarts_nothing(installed: Role) -> None:
    before = installed.lab_host.run(STAMPS)
    installed.install()
    assert installed.lab_host.run(STAMPS) == before


def test_another_site_is_refused_and_changes_nothing(installed: Role) -> None:
    before = installed.lab_host.run(STAMPS)
    stranger = installed.of_site("stranger")
    for change in (stranger.install, stranger.remove):
        with pytest.raises(Conflict) as caught:
            change()
        assert caught.value.code == "host.other_site"
    assert installed.lab_host.run(STAMPS) == before


def test_a_host_with_volumes_of_vms_is_not_given_back(installed: Role) -> None:
    volumes = "/var/lib/vgpuctl-agent/volumes"
    installed.lab_host.run(f"mkdir -p {volumes} && touch {volumes}/left.qcow2")
    with pytest.raises(Conflict) as caught:
        installed.remove()
    installed.lab_host.run(f"rm {volumes}/left.qcow2")
    assert caught.value.code == "host.has_vms"
    assert "active" in installed.lab_host.run("systemctl is-active vgpuctl-agent")
