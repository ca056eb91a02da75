# SPDX-License-Identifier: Apache-2.0
"""What a host sends of its GPUs and VMs, while its driver answers and while it hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.fakes.several import until
from tests.lab.conftest import LabHost
from tests.lab.enrolled import MDEV, Enrolled, enrol
from tests.lab.gpu_host import answers, switches, write

pytestmark = pytest.mark.lab

WAIT_S: Final = 180.0
"""Frames are ten seconds apart; under emulation a reading takes seconds."""
OF_A_VM: Final = {
    "vm_cpu_seconds_total", "vm_memory_maximum_bytes", "vm_disk_written_bytes_total", "vm_network_sent_bytes_total",
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    enrolled: Enrolled

    def readings(self) -> list[dict[str, Any]]:
        """Of all GPUs of the host and what lies on them, as an operator sees them."""
        gpus = self.enrolled.product.json("gpu", "list", "--host", self.enrolled.name)
        shown = (
            self.enrolled.product.json("gpu", "show", self.enrolled.name, gpu["address"], "--readings") for gpu in gpus
        )
        return [reading for gpu in shown for reading in gpu["readings"]]

    def own(self) -> dict[str, Any]:
        return next((reading for reading in self.readings() if reading["gpu"] == self.enrolled.gpu), {"values": []})

    def of_vm(self, name: str) -> list[dict[str, Any]]:
        return list(self.enrolled.product.json("show-vm", name, "--readings")["readings"])

    def sensors(self, **values: int) -> None:
        """What the GPU's sensors say from now on; nothing: what they say by themselves."""
        lines = "".join(f"{name} {value}\n" for name, value in values.items()) or "\n"
        path = f"{switches(self.enrolled.shell, self.enrolled.gpu)}/sensors"
        assert answers(self.enrolled.shell, [write(path, lines)]) == ["ok"]


@pytest.fixture(scope="module")
def scene(t4: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with enrol(MDEV, t4, tmp_path_factory.mktemp("state"), guests_boot_within_s=0) as enrolled:
        enrolled.product.ok(*enrolled.request("busy"))
        yield Scene(enrolled)


def _happens(reached: Callable[[], object], what: str) -> None:
    until(reached, what, WAIT_S)


def test_a_vm_has_numbers_of_its_own_and_of_its_vgpu(scene: Scene) -> None:
    _happens(lambda: {reading["kind"] for reading in scene.of_vm("busy")} == {"vm", "vgpu"}, "both kinds")
    of = {reading["kind"]: reading for reading in scene.of_vm("busy")}
    assert {value["quantity"] for value in of["vm"]["values"]} >= OF_A_VM
    assert len(of["vgpu"]["values"]) >= 8
    assert of["vgpu"]["facts"]["vgpu_type"] == scene.enrolled.profile


def test_a_gpu_that_hangs_silences_itself_alone(scene: Scene) -> None:
    scene.sensors(hangs=1)
    _happens(lambda: scene.own().get("silent") == "the driver does not answer", "silence of the GPU that hangs")
    others = [reading for reading in scene.readings() if reading["gpu"] != scene.enrolled.gpu]
    assert all(reading["values"] and reading["silent"] is None for reading in others)
    assert {reading["kind"] for reading in scene.of_vm("busy")} >= {"vm"}
    scene.sensors()
    _happens(lambda: scene.own().get("values"), "numbers of the GPU that answers again")
