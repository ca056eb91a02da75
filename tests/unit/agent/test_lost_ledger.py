# SPDX-License-Identifier: Apache-2.0
"""A host that has files of ours and a ledger that is new: nothing is done before it is settled whose they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent.assembly import Agent, Config, assemble
from orchestrator.agent.images.store import holds_files
from orchestrator.agent.wanted import RestoreList
from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction, ManageGpus
from orchestrator.core.actions.settle_ledger import KnownVm, SettleLedger
from orchestrator.core.errors import Conflict
from orchestrator.core.gpu.device import Device
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

T4 = "0000:01:00.0"
MDEV = "0b9c1a9e-6a43-4a57-8a3f-5d1d3b6a2c11"


class Host:
    """Whose agent can be started again, also after its ledger was taken away."""

    def __init__(self, root: Path) -> None:
        self.fake = FakeSysfs(root)
        self.fake.add_t4(T4)
        self.paths = self.fake.paths
        self.vm = str(uuid.uuid4())
        self.libvirt: Any = libvirt.open("test:///default")
        self.attempt = 0
        self.agent = self.start()

    def start(self) -> Agent:
        config = Config(site="s", epoch=1, storage=self.paths.storage)
        self.agent = assemble(config, root=self.paths.root, libvirt_uri="test:///default", timing=FakeTiming())
        return self.agent

    def furnish(self) -> None:
        """A VM of ours: disk, seed, domain, vGPU; and a domain and a file that are nobody's."""
        for directory, name in ((self.paths.volumes, f"{self.vm}.qcow2"), (self.paths.seeds, f"{self.vm}.iso")):
            (directory / name).write_bytes(b"x")
        (self.paths.volumes / "somebody.qcow2").write_bytes(b"y")
        self.fake.make_mdev(T4, "nvidia-231", MDEV)
        self.libvirt.defineXML(
            f"<domain type='test'><name>vm-{self.vm[:8]}</name><uuid>{self.vm}</uuid><memory unit='MiB'>64</memory>"
            "<os><type>hvm</type></os></domain>"
        )

    def lose_ledger(self) -> None:
        self.agent.ledger.close()
        for path in self.paths.ledger.iterdir():
            path.unlink()
        self.start()

    def do(self, action: HostAction) -> ActionResult:
        self.attempt += 1
        token = FencingToken(site="s", epoch=2, operation=f"op{self.attempt}", attempt=1)
        return self.agent.performer.perform(action, token)

    def known(self) -> SettleLedger:
        device = Device(kind="mdev", gpu=T4, parent=T4, type_name="GRID T4-2Q", name=MDEV)
        vm = KnownVm(
            vm=self.vm, volume=f"{self.vm}.qcow2", seed=f"{self.vm}.iso", devices=(device,), running=True,
            boot_policy="local", adopted=False,
        )  # fmt: skip
        return SettleLedger(gpus=(T4,), functions=(), vms=(vm,))

    def owners(self) -> list[str | None]:
        names = (f"volume:{self.vm}.qcow2", f"seed:{self.vm}.iso", f"domain:{self.vm}", f"mdev:{MDEV}")
        found = [self.agent.ledger.owner(name) for name in (*names, "volume:somebody.qcow2")]
        return [None if one is None else one.vm for one in found]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    for domain in made.libvirt.listAllDomains():
        if domain.UUIDString() == made.vm:
            domain.undefine()
    made.agent.ledger.close()


def test_an_agent_whose_ledger_is_gone_does_nothing_and_says_so(host: Host) -> None:
    host.furnish()
    host.lose_ledger()
    assert host.agent.ledger.is_lost()
    with pytest.raises(Conflict) as caught:
        host.do(ManageGpus(gpus=(T4,)))
    assert caught.value.code == "agent.ledger_lost"


def test_it_is_still_lost_when_the_agent_is_started_again_before_it_was_settled(host: Host) -> None:
    host.furnish()
    host.lose_ledger()
    host.agent.ledger.close()
    assert host.start().ledger.is_lost()


def test_the_ledger_of_a_host_without_files_of_vms_is_as_new_as_it_looks(host: Host) -> None:
    assert not holds_files(host.paths)
    host.lose_ledger()
    assert not host.agent.ledger.is_lost()
    assert host.do(ManageGpus(gpus=(T4,))).changed


def test_settled_it_knows_what_is_there_and_nothing_else_and_works_again(host: Host) -> None:
    host.furnish()
    host.lose_ledger()
    assert host.do(host.known()).changed
    assert host.owners() == [host.vm, host.vm, host.vm, host.vm, None]
    assert host.agent.ledger.managed_gpus() == {T4}
    assert RestoreList(host.paths, host.agent.ledger, "boot-1").vms() == (host.vm,)
    assert not host.do(host.known()).changed
    assert not host.do(ManageGpus(gpus=(T4,))).changed


def test_a_vgpu_that_is_not_as_the_database_says_is_left_nobodys(host: Host) -> None:
    host.furnish()
    host.lose_ledger()
    (vm,) = host.known().vms
    other = replace(vm, devices=tuple(replace(one, type_name="GRID T4-1Q") for one in vm.devices))
    host.do(replace(host.known(), vms=(other,)))
    assert host.owners() == [host.vm, host.vm, host.vm, None, None]
