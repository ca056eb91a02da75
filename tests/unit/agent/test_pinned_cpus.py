# SPDX-License-Identifier: Apache-2.0
"""No CPU is two running VMs' own, whatever a controller says; and what domains show of their CPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.domain_devices import read_domain_xml
from orchestrator.agent.pinned_cpus import PinnedCpus
from orchestrator.core.actions.host_actions import DefineDomain, StartDomain, StopDomain
from orchestrator.core.errors import Conflict, InvalidInput
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.hosts.domain import DomainDescription
from tests.unit.agent.bench import Bench, domain_of

OTHER = "0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"
ON_4 = CpuPlace(shared=(0, 1), pinned=(4,))


def other(place: CpuPlace) -> DomainDescription:
    return replace(domain_of(OTHER), name="default.other", cpus=place)


@pytest.fixture
def bench(furnished: Bench) -> Bench:
    furnished.furnish(OTHER)
    furnished.do(DefineDomain(vm=furnished.vm, domain=replace(domain_of(furnished.vm), cpus=ON_4)))
    furnished.do(StartDomain(vm=furnished.vm))
    return furnished


def test_a_cpu_that_a_running_vm_has_alone_is_given_to_no_other_until_it_stops(bench: Bench) -> None:
    bench.do(DefineDomain(vm=OTHER, domain=other(ON_4)))
    with pytest.raises(Conflict) as refused:
        bench.do(StartDomain(vm=OTHER))
    assert (refused.value.code, refused.value.details) == ("vm.cpu_foreign", f"owner {bench.vm}")
    assert not bench.domains.is_active(OTHER)
    bench.do(StopDomain(vm=bench.vm, grace_seconds=0))
    assert bench.do(StartDomain(vm=OTHER)).changed
    with pytest.raises(Conflict):
        bench.do(StartDomain(vm=bench.vm))


def test_vms_on_other_cpus_and_vms_that_share_are_not_in_each_others_way(bench: Bench) -> None:
    bench.do(DefineDomain(vm=OTHER, domain=other(replace(ON_4, pinned=(5,)))))
    assert bench.do(StartDomain(vm=OTHER)).changed
    bench.do(StopDomain(vm=OTHER, grace_seconds=0))
    bench.do(DefineDomain(vm=OTHER, domain=other(CpuPlace(shared=(0, 1)))))
    assert bench.do(StartDomain(vm=OTHER)).changed


def test_a_domain_shows_on_which_cpus_it_runs_as_it_was_described(bench: Bench) -> None:
    places = [CpuPlace(shared=(0, 1, 3)), ON_4, replace(ON_4, nodes=(0,), memory="strict")]
    for place in places:
        bench.do(DefineDomain(vm=OTHER, domain=other(place)))
        found = bench.domains.find(OTHER)
        assert found is not None
        assert found.affinity == place.affinity
    bench.do(DefineDomain(vm=OTHER, domain=replace(other(ON_4), cpus=None)))
    found = bench.domains.find(OTHER)
    assert found is not None
    assert found.affinity == ()


def test_a_vcpu_without_a_cpu_of_its_own_is_told_with_those_of_all() -> None:
    pins = "<cputune><vcpupin vcpu='1' cpuset='4-5'/></cputune>"
    xml = f"<domain><name>a</name><vcpu cpuset='0-1'>3</vcpu>{pins}</domain>"
    assert read_domain_xml(xml).affinity == ("any of 0-1", "4-5", "any of 0-1")
    assert read_domain_xml(xml.replace(" cpuset='0-1'", "")).affinity == ("any", "4-5", "any")


def test_a_boot_lets_every_cpu_go(tmp_path: Path) -> None:
    PinnedCpus(Ledger(tmp_path, site="s", epoch=1, boot_id="boot-1")).take("a", ("4", "5"))
    again = PinnedCpus(Ledger(tmp_path, site="s", epoch=1, boot_id="boot-2"))
    again.take("b", ("4",))
    again.take("a", ("5",))
    with pytest.raises(Conflict):
        again.take("b", ("4", "5"))
    again.give_back("a")
    again.take("b", ("4", "5"))


@pytest.mark.parametrize(
    "place",
    [
        CpuPlace(shared=()),
        CpuPlace(shared=(0,), pinned=(0,)),
        CpuPlace(shared=(0,), pinned=(1, 2)),
        CpuPlace(shared=(0, 0)),
        CpuPlace(shared=(-1,)),
        CpuPlace(shared=(99999,)),
        CpuPlace(shared=(0,), pinned=(1,), threads=0),
        CpuPlace(shared=(0,), pinned=(1,), threads=2),
        CpuPlace(shared=(0,), nodes=(0,)),
        CpuPlace(shared=(0,), memory="strict"),
        CpuPlace(shared=(0,), memory="preferred", nodes=(0, 1)),
    ],
)
def test_a_place_on_cpus_that_cannot_be_is_refused(furnished: Bench, place: CpuPlace) -> None:
    with pytest.raises(InvalidInput) as refused:
        furnished.do(DefineDomain(vm=furnished.vm, domain=replace(domain_of(furnished.vm), cpus=place)))
    assert refused.value.code == "vm.domain_invalid"
