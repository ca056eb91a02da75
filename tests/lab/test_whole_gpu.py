# SPDX-License-Identifier: Apache-2.0
"""A whole GPU for one VM while another VM has a part of the host's other GPU."""

from __future__ import annotations

import pytest

from tests.lab.enrolled import SMALL, VENDOR_VFIO, Enrolled
from tests.lab.host_facts import facts

pytestmark = pytest.mark.lab


def _guest_devices(enrolled: Enrolled, name: str) -> str:
    for known in enrolled.product.state.glob("ssh/*/known_hosts"):
        known.unlink()  # the lab's guest keeps nothing on disk: it comes back with another SSH host key
    return enrolled.product.ok("ssh", name, "--", "lspci", "-nn").out


def _pci_id(enrolled: Enrolled, gpu: str) -> str:
    """What the GPU itself says, which is what the guest is told."""
    words = enrolled.shell(f"od -An -tx2 -N4 /sys/bus/pci/devices/{gpu}/config").split()
    return ":".join(words)


@pytest.mark.parametrize("enrolment", ["whole"], indirect=True)
def test_a_vm_has_a_whole_gpu_and_its_driver_has_it_back_as_it_was(enrolled: Enrolled) -> None:
    product = enrolled.product
    beside = ("create-vm", "beside", "--profile", VENDOR_VFIO.profile, "--image", "guest", *SMALL)
    product.ok(*beside, "--ssh-key", enrolled.public_key)
    before = facts(enrolled.shell)
    sibling = enrolled.shell("virsh -q list --uuid").split()

    product.ok(*enrolled.request("train", "--ssh-key", enrolled.public_key))
    (device,) = product.json("show-vm", "train")["devices"]
    gpu = device["gpu"]
    assert enrolled.shell(f"basename $(readlink /sys/bus/pci/devices/{gpu}/driver)").strip() == "vfio-pci"
    assert _pci_id(enrolled, gpu) in _guest_devices(enrolled, "train")
    refused = product.refused(8, *enrolled.request("second"))
    assert "gpu.too_few" in refused.err

    product.ok("stop-vm", "train")
    assert facts(enrolled.shell)["drivers"] == before["drivers"]
    product.ok("start-vm", "train")
    assert set(sibling) < set(enrolled.shell("virsh -q list --uuid").split())
    product.ok("delete-vm", "train")
    assert facts(enrolled.shell) == before
    assert enrolled.shell("virsh -q list --uuid").split() == sibling
    product.ok("delete-vm", "beside")
