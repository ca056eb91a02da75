# SPDX-License-Identifier: Apache-2.0
"""A function of a network card under the GPU's switch: a guest sees it, also after a hard reset, and then the host's
own driver has it again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.lab.enrolled import VENDOR_VFIO, Enrolled, enrol_alone
from tests.lab.host_facts import facts

pytestmark = pytest.mark.lab

FUNCTION_IN_GUEST = "8086:10ca"
"""Intel's 82576, a virtual function of it (pci.ids)."""
FUNCTIONS = 2
_CARDS = "for d in /sys/bus/pci/devices/*; do [ -e $d/sriov_totalvfs ] && grep -q ^0x02 $d/class && basename $d; done"
_DRIVERS = "for v in /sys/bus/pci/devices/{}/virtfn*; do basename $(readlink $v/driver); done"


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol_alone(replace(VENDOR_VFIO, scenario="rdma", smallest=True), tmp_path_factory.mktemp("state")) as one:
        yield one


def cards(enrolled: Enrolled) -> list[str]:
    """The one under the GPU's switch first: buses are numbered from the first root port on."""
    return enrolled.shell(f"{_CARDS}; true").split()


def drivers(enrolled: Enrolled, card: str) -> list[str]:
    return enrolled.shell(_DRIVERS.format(card)).split()


def macs(enrolled: Enrolled, card: str) -> str:
    return enrolled.shell(f"ip link show dev $(ls /sys/bus/pci/devices/{card}/net) | grep ' vf '")


def sees_both(enrolled: Enrolled, name: str) -> bool:
    said = enrolled.guest_says(name)
    return enrolled.guest_pci_id in said and said.partition("00:00.0")[2].count(FUNCTION_IN_GUEST) == 1


def test_a_guest_sees_the_function_also_after_a_hard_reset_and_its_driver_has_it_again(enrolled: Enrolled) -> None:
    product, (beside, elsewhere) = enrolled.product, cards(enrolled)
    assert "host.no_nic" in product.refused(8, *enrolled.request("train", "--nic", "rdma")).err
    enrolled.shell(f"echo {FUNCTIONS} > /sys/bus/pci/devices/{beside}/sriov_numvfs")
    before, before_macs = facts(enrolled.shell), macs(enrolled, beside)
    assert drivers(enrolled, beside) == ["igbvf"] * FUNCTIONS
    product.ok("doctor")
    product.ok("host", "set", enrolled.name, "--rdma-nics", f"{beside},{elsewhere}")

    product.ok(*enrolled.request("train", "--nic", "rdma"))
    vm = product.json("show-vm", "train")
    nic = vm["nic_function"]
    assert (nic["card"], nic["under_switch"]) == (beside, True)
    assert sorted(drivers(enrolled, beside)) == ["igbvf", "vfio-pci"]
    assert nic["mac"] in macs(enrolled, beside)
    assert sees_both(enrolled, "train")
    assert enrolled.is_confined("train")
    product.ok(*enrolled.request("sibling", "--nic", "rdma"))
    since = enrolled.running_since("sibling")
    assert drivers(enrolled, beside) == ["vfio-pci"] * FUNCTIONS
    assert "nics_taken" in product.refused(8, *enrolled.request("more", "--nic", "rdma")).err

    product.ok("stop-vm", "train")
    assert sorted(drivers(enrolled, beside)) == ["igbvf", "vfio-pci"]
    product.ok("start-vm", "train")
    assert enrolled.running_since("sibling") == since
    assert product.json("doctor") == []

    enrolled.restored_after_a_hard_reset("train", "sibling")
    assert nic["mac"] in macs(enrolled, beside)
    assert sees_both(enrolled, "train")
    enrolled.clear()
    assert (facts(enrolled.shell), macs(enrolled, beside)) == (before, before_macs)
    assert drivers(enrolled, beside) == ["igbvf"] * FUNCTIONS
