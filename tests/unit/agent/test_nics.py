# SPDX-License-Identifier: Apache-2.0
"""A function of a network card that is given to a VM and given back, on a tree that looks like a host."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nics import NicFunctions
from orchestrator.agent.sysfs import pci
from orchestrator.core.actions.host_actions import ActionResult, DefineDomain, StartDomain
from orchestrator.core.actions.nics import GiveNicFunction, TakeNicFunction
from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.core.hosts.domain import DomainDescription
from orchestrator.core.hosts.nic import NicFunction
from tests.fakes.fake_nics import FakeNicLinks
from tests.unit.agent.acting import Acting
from tests.unit.agent.bench import Bench as Whole
from tests.unit.agent.bench import domain_of
from tests.unit.agent.fake_sysfs import FakeSysfs
from tests.unit.agent.fake_timing import FakeTiming

CARD, FIRST, SECOND = "0000:05:00.0", "0000:05:00.1", "0000:05:00.2"
MAC, BEFORE = "52:54:01:aa:bb:cc", "00:00:00:00:00:00"
OTHER = "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"


def add_card(host: FakeSysfs, *, functions: int = 2, pci_class: str = "0x020000") -> None:
    directory = host.add_function(CARD, device="101d", pci_class=pci_class, vendor="0x15b3")
    host.text(directory / "sriov_totalvfs", "8")
    host.text(directory / "sriov_numvfs", str(functions))
    (directory / "net" / "rdma0").mkdir(parents=True)
    host.add_drivers("mlx5_core", "vfio-pci")
    switch_on(host, functions)


def switch_on(host: FakeSysfs, functions: int) -> None:
    directory = host.paths.pci(CARD)
    for number in range(functions):
        address = f"{CARD[:-1]}{number + 1}"
        function = host.add_function(address, device="101e", pci_class="0x020000", vendor="0x15b3")
        host.text(function / "net" / f"rdma0v{number}" / "flags", "0x1002")
        (function / "physfn").symlink_to(directory)
        (directory / f"virtfn{number}").symlink_to(function)
        host.join_groups(address)
        host.bind(address, "mlx5_core")


class Bench(Acting[GiveNicFunction | TakeNicFunction]):
    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        add_card(self.host)
        self.links = FakeNicLinks({("rdma0", 0): BEFORE, ("rdma0", 1): BEFORE})
        self.start()

    def start(self, boot_id: str = "boot-1") -> None:
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id=boot_id)
        files = DeviceFiles(self.host.paths, self.ledger, FakeTiming(), dict, self.write)
        self.nics = NicFunctions(files, self.links)

    def write(self, path: Path, value: str) -> None:
        if path.name == "sriov_numvfs":
            self.host.text(path, value)
            switch_on(self.host, int(value))
        elif path.name == "drivers_probe":
            self.host.bind(value, "mlx5_core")
        else:
            self.host.write(path, value)

    def do(self, action: GiveNicFunction | TakeNicFunction) -> ActionResult:
        return self.nics.handlers[type(action)](action)

    def seen(self, address: str) -> NicFunction:
        (card,) = self.nics.observe()
        return next(one for one in card.functions if one.address == address)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def give(vm: str = "a", vf: str = FIRST) -> GiveNicFunction:
    return GiveNicFunction(vm=vm, card=CARD, vf=vf, functions=2, mac=MAC)


def take(vm: str = "a", vf: str = FIRST) -> TakeNicFunction:
    return TakeNicFunction(vm=vm, card=CARD, vf=vf)


def test_a_function_goes_to_the_vm_with_its_address_and_comes_back_to_its_driver_as_it_was(bench: Bench) -> None:
    assert bench.seen(FIRST) == NicFunction(address=FIRST)
    assert bench.do(give()) == ActionResult(changed=True)
    assert not bench.do(give()).changed
    assert (bench.host.driver_of(FIRST), bench.host.driver_of(SECOND)) == ("vfio-pci", "mlx5_core")
    assert bench.links.macs == {("rdma0", 0): MAC, ("rdma0", 1): BEFORE}
    assert bench.seen(FIRST) == NicFunction(address=FIRST, owner="a")
    assert bench.do(take("b")).changed is False
    assert bench.do(take()).changed
    assert not bench.do(take()).changed
    assert bench.host.driver_of(FIRST) == "mlx5_core"
    assert bench.links.macs == {("rdma0", 0): BEFORE, ("rdma0", 1): BEFORE}
    assert (bench.host.paths.pci(FIRST) / "driver_override").read_text().strip() == "(null)"
    assert bench.seen(FIRST) == NicFunction(address=FIRST)


def test_one_function_is_never_two_vms(bench: Bench) -> None:
    bench.do(give())
    bench.refused(give("b"), Conflict, "nic.foreign")
    bench.do(give("b", SECOND))
    assert [bench.seen(one).owner for one in (FIRST, SECOND)] == ["a", "b"]


def test_what_the_host_uses_or_what_cannot_be_kept_apart_is_given_to_nobody(bench: Bench) -> None:
    flags = bench.host.paths.pci(FIRST) / "net/rdma0v0/flags"
    bench.host.text(flags, "0x1003")
    assert "interface rdma0v0 up" in bench.refused(give(), Conflict, "nic.in_use")
    assert "rdma0v0 up" in str(bench.seen(FIRST).held)
    bench.host.text(flags, "0x1002")
    bench.host.text(bench.host.paths.pci(FIRST) / "reset_method", "")
    bench.refused(give(), Fatal, "nic.no_reset")
    bench.host.bind(SECOND, "vfio-pci")
    bench.refused(give(vf=SECOND), Conflict, "nic.in_use")
    assert bench.seen(SECOND).held == "vfio-pci has it, and we did not give it there"
    bench.host.bind(SECOND, "mlx5_core")
    bench.host.join_groups(FIRST, SECOND)
    assert f"shares its IOMMU group with {FIRST}" in bench.refused(give(vf=SECOND), Conflict, "nic.in_use")
    assert bench.links.macs == {("rdma0", 0): BEFORE, ("rdma0", 1): BEFORE}


def test_only_virtual_functions_of_network_cards_are_touched(bench: Bench) -> None:
    bench.host.add_l40s("0000:02:00.0")
    bench.refused(give(vf="0000:05:00.3"), Fatal, "nic.function_gone")
    bench.refused(give(vf=CARD), Fatal, "nic.function_gone")
    gpu = replace(give(vf="0000:02:00.1"), card="0000:02:00.0")
    bench.refused(gpu, Fatal, "nic.function_gone")
    bench.refused(give(vf="0000:05:0.1"), InvalidInput, "pci.address_invalid")
    assert [one.address for one in bench.nics.observe()[0].functions] == [FIRST, SECOND]


def test_a_card_whose_driver_sets_no_address_gives_its_functions_all_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "refuses")
    bench.links.refusal = "Operation not supported"
    assert "Operation not supported" in bench.do(give()).message
    assert bench.host.driver_of(FIRST) == "vfio-pci"
    bench.links.refusal = None
    assert bench.do(take()).changed
    infiniband = FakeSysfs(tmp_path / "infiniband")
    bench.host = infiniband
    add_card(infiniband, pci_class="0x020700")
    bench.start()
    bench.links.macs.clear()
    assert "no interface of its own" in bench.do(give()).message
    assert bench.links.macs == {}


def test_a_function_that_is_open_is_not_taken_from_its_vm(bench: Bench) -> None:
    bench.do(give())
    bench.host.hold_open(bench.host.node_of(bench.host.paths.pci(FIRST)))
    bench.refused(take(), Conflict, "vgpu.in_use")
    assert bench.host.driver_of(FIRST) == "vfio-pci"


def test_after_a_boot_as_many_functions_are_switched_on_as_there_were_and_the_vm_has_its_own(bench: Bench) -> None:
    bench.do(give(vf=SECOND))
    root = bench.host.paths.root / "again"
    bench.host = FakeSysfs(root)
    add_card(bench.host, functions=0)
    bench.start("boot-2")
    assert bench.nics.observe()[0].functions == ()
    bench.links.macs = {("rdma0", 0): BEFORE, ("rdma0", 1): BEFORE}
    assert bench.do(give(vf=SECOND)).changed
    assert (bench.host.paths.pci(CARD) / "sriov_numvfs").read_text().strip() == "2"
    assert bench.host.driver_of(SECOND) == "vfio-pci"
    assert bench.links.macs["rdma0", 1] == MAC


def test_a_function_that_was_given_before_its_driver_came_has_that_driver_afterwards(bench: Bench) -> None:
    """After a boot its driver may still be loading when its VM starts."""
    (bench.host.paths.pci(FIRST) / "driver").unlink()
    bench.do(give())
    assert bench.host.driver_of(FIRST) == "vfio-pci"
    bench.do(take())
    assert bench.host.driver_of(FIRST) == "mlx5_core"


def test_a_ledger_that_was_lost_is_told_whose_a_function_is_and_the_kernel_finds_its_driver_again(bench: Bench) -> None:
    bench.do(give())
    bench.ledger.release(f"nic:{FIRST}")
    assert bench.seen(FIRST).held is not None
    bench.nics.settle(give(vf=SECOND))
    bench.nics.settle(give())
    assert (bench.seen(FIRST).owner, bench.seen(SECOND).owner) == ("a", None)
    bench.do(take())
    assert bench.host.driver_of(FIRST) == "mlx5_core"


def test_the_ports_above_a_function_are_those_that_its_directory_lies_in(tmp_path: Path) -> None:
    host = FakeSysfs(tmp_path)
    inside = tmp_path / "sys/devices/pci0000:00/0000:00:05.0/0000:01:00.0/0000:02:01.0" / CARD
    inside.mkdir(parents=True)
    host.paths.pci(CARD).symlink_to(inside)
    assert pci.bridges_above(host.paths, CARD) == ("0000:00:05.0", "0000:01:00.0", "0000:02:01.0")
    assert pci.bridges_above(host.paths, FIRST) == ()


def test_a_domain_takes_its_own_function_and_no_other_vms(furnished: Whole) -> None:
    add_card(furnished.host)
    furnished.furnish(OTHER)

    def named(vm: str) -> DomainDescription:
        return replace(domain_of(vm), name=f"default.{vm[:8]}", nic=FIRST)

    furnished.do(DefineDomain(vm=furnished.vm, domain=named(furnished.vm)))  # before it is made, as of a stopped VM
    with pytest.raises(Conflict):
        furnished.do(StartDomain(vm=furnished.vm))
    furnished.do(GiveNicFunction(vm=furnished.vm, card=CARD, vf=FIRST, functions=2, mac=MAC))
    assert furnished.do(StartDomain(vm=furnished.vm)).changed
    with pytest.raises(Conflict) as refused:
        furnished.do(DefineDomain(vm=OTHER, domain=named(OTHER)))
    assert refused.value.code == "vm.device_foreign"
    wanted = furnished.wanted.find(furnished.vm)
    assert wanted is not None
    assert [type(one) for one in wanted.devices] == [GiveNicFunction]
    assert furnished.nics.observe()[0].functions[0].owner == furnished.vm


def test_addresses_are_told_of_a_card_that_has_a_link_local_one_too() -> None:
    told = "from orchestrator.agent.nic_links import own_addresses; print(*own_addresses())"
    script = (
        "ip link add one type veth peer name two && ip link set two up && ip link set one up && "
        "ip address add fe80::7/64 dev one nodad && ip address add 192.0.2.1/24 dev one && "
        f"exec {sys.executable} -c '{told}'"
    )
    done = subprocess.run(["unshare", "--map-root-user", "--net", "sh", "-c", script], capture_output=True, text=True)
    assert done.stdout == "192.0.2.1\n", done.stderr
