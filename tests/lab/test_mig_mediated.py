# SPDX-License-Identifier: Apache-2.0
"""VMs whose vGPUs are mediated devices in GPU instances of an A100, as kernels before the vendor-specific VFIO make
them."""

from __future__ import annotations

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import MIG_MEDIATED, Enrolled, enrol
from tests.lab.host_facts import facts
from tests.lab.test_mig_backed import bare, instances

pytestmark = pytest.mark.lab

_INSIDE = "cd /sys/bus/mdev/devices && grep -H '' */nvidia/gpu_instance_id || true"


def inside(enrolled: Enrolled) -> dict[str, str]:
    """mdev → id of the GPU instance that the driver says it lies in."""
    rows = [line.split("/nvidia/gpu_instance_id:") for line in enrolled.shell(_INSIDE).split("\n") if line]
    return {name: number.strip() for name, number in rows}


def mdev_of(enrolled: Enrolled, vm: str) -> str:
    (device,) = enrolled.product.json("show-vm", vm)["devices"]
    assert device["kind"] == "mig_backed"
    return str(device["mdev_uuid"])


def test_a_mediated_device_lies_in_its_vms_instance_and_both_come_back_when_the_host_does(
    a100: LabHost, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = bare(a100)
    with enrol(MIG_MEDIATED, a100, tmp_path_factory.mktemp("state")) as enrolled:
        product = enrolled.product
        product.ok(*enrolled.request_of("sibling", enrolled.other_size))
        assert enrolled.guest_pci_id in enrolled.guest_says("sibling")
        assert enrolled.is_confined("sibling")
        process, alone, facts_before = enrolled.running_since("sibling"), instances(enrolled), facts(enrolled.shell)

        product.ok(*enrolled.request("train"))
        assert enrolled.guest_pci_id in enrolled.guest_says("train")
        there, lie = instances(enrolled), inside(enrolled)
        assert {vm: profile for vm, (profile, _) in there.items()} == {"sibling": "1g.10gb", "train": "1g.20gb"}
        assert set(lie) == {mdev_of(enrolled, "sibling"), mdev_of(enrolled, "train")}
        assert len(set(lie.values())) == 2
        product.ok("stop-vm", "train")
        assert instances(enrolled) == alone
        product.ok("start-vm", "train")
        assert (instances(enrolled), inside(enrolled)) == (there, lie)
        assert enrolled.running_since("sibling") == process
        assert product.run("doctor", "-o", "json").json() == []

        enrolled.restored_after_a_hard_reset("sibling", "train")
        assert inside(enrolled) == lie
        assert instances(enrolled) == there
        process = enrolled.running_since("sibling")
        assert enrolled.guest_pci_id in enrolled.guest_says("train")
        product.ok("delete-vm", "train")
        assert (instances(enrolled), facts(enrolled.shell)) == (alone, facts_before)
        assert enrolled.running_since("sibling") == process
    assert bare(a100) == before
