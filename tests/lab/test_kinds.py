# SPDX-License-Identifier: Apache-2.0
"""The straight path of each way a GPU reaches a VM, on one host that has them all: made, seen by its guest, stopped,
started and taken away, while the others run on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.fakes.several import until
from tests.lab.conftest import LabHost
from tests.lab.enrolled import MDEV, MDEV_ON_VFS, MIG_BACKED, VENDOR_VFIO, WHOLE, Enrolled, enrol
from tests.lab.gpu_host import refusals
from tests.lab.host_facts import facts, vgpu_count

pytestmark = pytest.mark.lab

READ_WITHIN_S = 180.0
"""Frames are ten seconds apart; under emulation a reading takes seconds."""
_VGPUS = {"pf": MDEV, "vf": MDEV_ON_VFS, "instance": MIG_BACKED, "vendor": VENDOR_VFIO}
_ATTACHED_BY = {"pf": "mdev", "vf": "mdev", "instance": "mig_backed", "vendor": "vendor_vfio"}


@pytest.fixture(scope="module")
def enrolled(mixed: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol(WHOLE, mixed, tmp_path_factory.mktemp("state")) as one:
        yield one


def test_each_kind_comes_and_goes_beside_the_others_and_the_host_is_as_before(enrolled: Enrolled) -> None:
    product = enrolled.product
    states = [facts(enrolled.shell)]
    for name, kind in _VGPUS.items():
        product.ok(*enrolled.request_of(name, kind.profile))
        assert kind.guest_pci_id in enrolled.guest_says(name)
        _is_itself_and_confined(enrolled, name, _ATTACHED_BY[name])
        states.append(facts(enrolled.shell))
    assert vgpu_count(enrolled.shell) == len(_VGPUS)
    _nothing_is_amiss(enrolled)
    for name in _VGPUS:
        until(partial(_has_readings, enrolled, name), f"readings of {name} and its vGPU", READ_WITHIN_S)

    processes = {name: enrolled.running_since(name) for name in _VGPUS}
    for name in reversed(_VGPUS):
        after, before = states.pop(), states[-1]
        product.ok("stop-vm", name)
        assert facts(enrolled.shell)["drivers"] == before["drivers"]
        product.ok("start-vm", name)
        assert facts(enrolled.shell) == after
        product.ok("delete-vm", name)
        assert facts(enrolled.shell) == before
        del processes[name]
        assert {other: enrolled.running_since(other) for other in processes} == processes
        if name == "vendor":
            _a_whole_gpu_comes_and_goes(enrolled)
            assert {other: enrolled.running_since(other) for other in processes} == processes
    assert refusals(enrolled.shell) == 0  # readings are taken all the time, and were in nobody's way


def _a_whole_gpu_comes_and_goes(enrolled: Enrolled) -> None:
    """The only one that has an IOMMU group of its own and no vGPU."""
    product, before = enrolled.product, facts(enrolled.shell)
    product.ok(*enrolled.request("whole"))
    assert VENDOR_VFIO.guest_pci_id in enrolled.guest_says("whole")
    _is_itself_and_confined(enrolled, "whole", "passthrough")
    (device,) = product.json("show-vm", "whole")["devices"]
    until(partial(_says_why_not, enrolled, device["gpu"], "whole"), "why the whole GPU has no readings", READ_WITHIN_S)
    product.ok("stop-vm", "whole")
    assert facts(enrolled.shell)["drivers"] == before["drivers"]
    product.ok("start-vm", "whole")
    product.ok("delete-vm", "whole")
    assert facts(enrolled.shell) == before


def _is_itself_and_confined(enrolled: Enrolled, name: str, attached_by: str) -> None:
    shown = enrolled.product.json("show-vm", name)
    assert [device["kind"] for device in shown["devices"]] == [attached_by]
    assert enrolled.is_confined(name)
    written = enrolled.shell(f"virsh dumpxml --inactive {shown['id']}")
    assert written.count("<backingStore type='file'>") == 1


def _has_readings(enrolled: Enrolled, name: str) -> bool:
    readings = enrolled.product.json("show-vm", name, "--readings")["readings"]
    return {reading["kind"] for reading in readings if reading["values"]} >= {"vm", "vgpu"}


def _says_why_not(enrolled: Enrolled, gpu: str, vm: str) -> bool:
    (reading,) = enrolled.product.json("gpu", "show", enrolled.name, gpu, "--readings")["readings"]
    return (reading["silent"], reading["vm"], reading["values"]) == ("passed through", f"default/{vm}", [])


def _nothing_is_amiss(enrolled: Enrolled) -> None:
    seen = enrolled.product.json("host", "show", enrolled.name)
    assert (seen["state"], seen["software"]["confinement"], seen["allow_unconfined"]) == ("ready", "apparmor", False)
    assert enrolled.product.run("doctor", "-o", "json").json() == []
