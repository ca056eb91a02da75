# SPDX-License-Identifier: Apache-2.0
"""What a host sends of its GPUs is what its driver says, and a real Prometheus has it through the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from orchestrator.core.units import MIB
from tests.fakes.certificate import OverTls, over_tls
from tests.fakes.prometheus import BOARD_QUERIES, Prometheus, prometheus
from tests.fakes.several import until
from tests.lab.conftest import LabHost
from tests.lab.enrolled import MDEV, Enrolled, enrol
from tests.lab.gpu_host import answers, switches, write

pytestmark = pytest.mark.lab

WAIT_S: Final = 180.0
"""Frames are ten seconds apart; under emulation a reading takes seconds."""
SENSORS: Final = {
    "utilization": 70, "temperature_c": 61, "power_mw": 61500, "encoder_utilization": 5, "ecc": 1, "ecc_corrected": 3,
}  # fmt: skip
ASKED: Final = {
    "utilization.gpu": ("gpu_utilization_ratio", "", 0.01),
    "memory.used": ("gpu_memory_used_bytes", "", MIB),
    "memory.free": ("gpu_memory_free_bytes", "", MIB),
    "memory.total": ("gpu_memory_total_bytes", "", MIB),
    "temperature.gpu": ("gpu_temperature_celsius", "gpu", 1),
    "power.draw": ("gpu_power_watts", "", 1),
    "enforced.power.limit": ("gpu_power_limit_watts", "enforced", 1),
    "power.default_limit": ("gpu_power_limit_watts", "default", 1),
    "ecc.errors.corrected.volatile.total": ("gpu_ecc_errors_total", "corrected", 1),
}
"""By the name that nvidia-smi has: quantity, label, and how much of its unit one of nvidia-smi's is."""
OF_A_VM: Final = {
    "vm_cpu_seconds_total", "vm_memory_maximum_bytes", "vm_disk_written_bytes_total", "vm_network_sent_bytes_total",
}  # fmt: skip


NOT_OF_A_T4: Final = {
    "vgpuctl-host: Remapped rows A", "vgpuctl-host: GPU instances in use A", "vgpuctl-fleet: Fullest quota A",
    "vgpuctl-drivers: Licences end in A", "vgpuctl-drivers: Until the first licence ends A",
}  # fmt: skip
"""Panels of a board for what this GPU is not made for, for quotas, and for the ends of licences, which the lab's driver
does not tell."""


@dataclass(frozen=True)
class Scene:
    enrolled: Enrolled
    tls: OverTls
    index: int
    """Of the GPU that was given to us, as the driver counts."""

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

    def nvidia_smi(self) -> dict[str, float]:
        fields = ",".join(ASKED)
        said = self.enrolled.shell(f"nvidia-smi -i {self.index} --query-gpu={fields} --format=csv,noheader,nounits")
        return dict(zip(ASKED, map(float, said.split(", ")), strict=True))

    def sensors(self, **values: int) -> None:
        """What the GPU's sensors say from now on; nothing: what they say by themselves."""
        lines = "".join(f"{name} {value}\n" for name, value in values.items()) or "\n"
        path = f"{switches(self.enrolled.shell, self.enrolled.gpu)}/sensors"
        assert answers(self.enrolled.shell, [write(path, lines)]) == ["ok"]


@pytest.fixture(scope="module")
def scene(t4: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    state = tmp_path_factory.mktemp("state")
    tls = over_tls(state)
    settings = {"listen": tls.listen, "tls_cert": str(tls.certificate), "tls_key": str(tls.key)}
    (state / "config.yaml").write_text(yaml.safe_dump(settings))
    with enrol(MDEV, t4, state, guests_boot_within_s=0) as enrolled:
        enrolled.product.ok(*enrolled.request("busy"))
        listed = enrolled.shell("nvidia-smi --query-gpu=index,pci.bus_id --format=csv,noheader").lower().split()
        by_address = dict(zip((address[4:] for address in listed[1::2]), listed[::2], strict=True))
        yield Scene(enrolled, tls, int(by_address[enrolled.gpu].rstrip(",")))


def _values(reading: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(value["quantity"], value["label"]): value["number"] for value in reading["values"]}


def _happens(reached: Callable[[], object], what: str) -> None:
    until(reached, what, WAIT_S)


def test_a_frame_says_what_nvidia_smi_says(scene: Scene) -> None:
    scene.sensors(**SENSORS)
    _happens(lambda: _values(scene.own()).get(("gpu_temperature_celsius", "gpu")) == 61, "a frame with these sensors")
    values, said = _values(scene.own()), scene.nvidia_smi()
    wanted = {name: values[quantity, label] / of_one for name, (quantity, label, of_one) in ASKED.items()}
    assert said == pytest.approx(wanted, rel=0.001, abs=0.5)
    assert (said["temperature.gpu"], said["ecc.errors.corrected.volatile.total"]) == (61, 3)
    scene.sensors()


def test_a_vm_has_numbers_of_its_own_and_of_its_vgpu(scene: Scene) -> None:
    _happens(lambda: {reading["kind"] for reading in scene.of_vm("busy")} == {"vm", "vgpu"}, "both kinds")
    of = {reading["kind"]: reading for reading in scene.of_vm("busy")}
    assert {value["quantity"] for value in of["vm"]["values"]} >= OF_A_VM
    assert len(of["vgpu"]["values"]) >= 8
    assert of["vgpu"]["facts"]["vgpu_type"] == scene.enrolled.profile


def test_a_gpu_that_hangs_silences_itself_alone(scene: Scene) -> None:
    scene.sensors(hangs=1)
    try:
        scene.enrolled.product.run("doctor")  # the host is observed while its driver says nothing of any GPU
        _happens(lambda: scene.own().get("silent") == "the driver does not answer", "silence of the GPU that hangs")
        others = [reading for reading in scene.readings() if reading["gpu"] != scene.enrolled.gpu]
        assert all(reading["values"] and reading["silent"] is None for reading in others)
        assert {reading["kind"] for reading in scene.of_vm("busy")} >= {"vm"}
    finally:
        scene.sensors()
    _happens(lambda: scene.own().get("values"), "numbers of the GPU that answers again")


@pytest.fixture(scope="module")
def scraped(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Has scraped the VM and its vGPU twice."""
    token = scene.enrolled.product.json("token", "create", "--tenant", "*", "--role", "read-only")["token"]
    with prometheus(tmp_path_factory.mktemp("prometheus"), scene.tls, token) as made:
        _happens(lambda: _asked(made, "count(rate(vgpuctl_vgpu_licensed[1m])) > 0"), "two scrapes of a vGPU")
        yield made


def _asked(made: Prometheus, query: str) -> list[Any]:
    try:
        return made.ask(query)
    except OSError:
        return []  # it has only just been started


def test_prometheus_scrapes_a_host_through_the_server(scene: Scene, scraped: Prometheus) -> None:
    vm = scene.enrolled.product.json("show-vm", "busy")["id"]
    assert [target["value"][1] for target in scraped.ask("up")] == ["1", "1"]
    per_gpu = scraped.ask('count by (gpu) ({__name__=~"vgpuctl_gpu_.*", vgpu="", job="vgpuctl-hosts"})')
    assert len(per_gpu) >= 1
    assert all(int(count["value"][1]) >= 20 for count in per_gpu), per_gpu
    in_vgpus = 'count by (vgpu) ({__name__=~"vgpuctl_vgpu_.*", vgpu!=""})'
    assert [int(count["value"][1]) >= 8 for count in scraped.ask(in_vgpus)] == [True], scraped.ask(in_vgpus)
    for name in (
        "libvirt_domain_info_cpu_time_seconds_total", "libvirt_domain_info_maximum_memory_bytes",
        "libvirt_domain_block_stats_write_bytes_total", "libvirt_domain_interface_stats_transmit_bytes_total",
        "vgpuctl_vgpu_memory_used_bytes",
    ):  # fmt: skip
        joined = scraped.ask(f"{name} * on (vm) group_left (name, tenant) vgpuctl_vm_info")
        found = {(row["metric"]["vm"], row["metric"]["name"], row["metric"]["tenant"]) for row in joined}
        assert found == {(vm, "busy", "default")}, name


def test_boards_have_answers_of_a_lab_host(scraped: Prometheus) -> None:
    assert {panel for panel, query in BOARD_QUERIES.items() if not scraped.ask(query)} == NOT_OF_A_T4
