# SPDX-License-Identifier: Apache-2.0
"""A whole GPU for one VM while another VM has a part of the host's other GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import WHOLE, Enrolled, enrol
from tests.lab.gpu_host import refusals
from tests.lab.host_facts import facts

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def enrolled(mixed: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol(WHOLE, mixed, tmp_path_factory.mktemp("state")) as one:
        yield one


def _pci_id(enrolled: Enrolled, gpu: str) -> str:
    """NVIDIA's, as the kernel knows it."""
    file = f"/sys/bus/pci/devices/{gpu}"
    return enrolled.shell(f"cat {file}/vendor {file}/device").replace("0x", "").strip().replace("\n", ":")


def _driver(enrolled: Enrolled, gpu: str) -> str:
    return enrolled.shell(f"basename $(readlink /sys/bus/pci/devices/{gpu}/driver)").strip()


def test_a_vm_has_a_whole_gpu_and_its_driver_has_it_back_as_it_was(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request_of("beside", enrolled.other_size))
    before, sibling = facts(enrolled.shell), enrolled.running_since("beside")
    had = refusals(enrolled.shell)

    enrolled.shell("nvidia-smi -pm 1")  # as its daemon has them: in use, though no file shows it
    product.ok("doctor")  # a host with one emulated processor may have been silent while its guest started
    product.ok(*enrolled.request("train"))
    (device,) = product.json("show-vm", "train")["devices"]
    assert _driver(enrolled, device["gpu"]) == "vfio-pci"
    name = _pci_id(enrolled, device["gpu"])
    assert name.startswith(enrolled.guest_pci_id)
    assert name in enrolled.guest_says("train")
    assert enrolled.is_confined("train")
    product.ok(*enrolled.request("other", "--no-start"))
    refused = product.refused(8, *enrolled.request("third"))
    assert "gpu.too_few" in refused.err

    product.ok("stop-vm", "train")
    assert facts(enrolled.shell)["drivers"] == before["drivers"]
    product.ok("start-vm", "train")
    assert _driver(enrolled, device["gpu"]) == "vfio-pci"
    product.ok("delete-vm", "train")
    product.ok("delete-vm", "other")
    said = enrolled.shell("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader; nvidia-smi -pm 0")
    assert "Enabled" in said
    assert not {"Disabled"} & set(said.splitlines())
    assert facts(enrolled.shell) == before
    assert enrolled.running_since("beside") == sibling
    assert refusals(enrolled.shell) == had  # readings were in no change's way


_BY_UEFI = """\
schema_version: 1
offerings:
  - {name: whole-uefi, kind: passthrough, gpu_count: 1, firmware: uefi}
"""


@pytest.mark.kvm
def test_a_guest_boots_by_uefi_with_a_whole_gpu_and_variables_of_its_own(enrolled: Enrolled, tmp_path: Path) -> None:
    product, file = enrolled.product, tmp_path / "uefi.yaml"
    before = facts(enrolled.shell)
    file.write_text(_BY_UEFI)
    product.ok("profile", "add", str(file))
    assert product.json("host", "show", enrolled.name)["software"]["uefi"] is True
    product.ok(*enrolled.request_of("train", "whole-uefi"))
    vm = product.json("show-vm", "train")
    variables = f"/var/lib/vgpuctl-agent/nvram/{vm['id']}.fd"
    assert "OVMF" in enrolled.shell(f"virsh dumpxml {vm['id']} | grep -E '<loader|<nvram'")
    said = enrolled.guest_says("train", limit_s=280)
    assert "vgpu-guest ready" in said
    assert _pci_id(enrolled, vm["devices"][0]["gpu"]) in said
    assert enrolled.is_confined("train")

    product.ok("stop-vm", "train")
    kept = enrolled.shell(f"stat -c '%s %Y' {variables}")
    product.ok("start-vm", "train")
    assert enrolled.shell(f"stat -c %s {variables}").split() == kept.split()[:1]
    product.ok("delete-vm", "train")
    assert "gone" in enrolled.shell(f"test -e {variables} || echo gone")
    assert facts(enrolled.shell) == before
