# SPDX-License-Identifier: Apache-2.0
"""What others call the quantities that are read: NVIDIA's DCGM exporter by a table, the libvirt exporter by the rows
here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

from pydantic import field_validator

from orchestrator.catalogue.tables import TableRow, profiles_directory, read_table
from orchestrator.core.readings.quantities import BY_NAME

DcgmNames = Literal["legacy", "4.6"]
"""As DCGM spelt its fields before 4.6.0, and since."""

_DOMAIN: Final = "libvirt_domain_"
LIBVIRT_NAMES: Final[Mapping[str, str]] = {
    "vm_memory_maximum_bytes": f"{_DOMAIN}info_maximum_memory_bytes",
    "vm_memory_resident_bytes": f"{_DOMAIN}info_memory_usage_bytes",
    "vm_vcpus": f"{_DOMAIN}info_virtual_cpus",
    "vm_cpu_seconds_total": f"{_DOMAIN}info_cpu_time_seconds_total",
    "vm_disk_read_bytes_total": f"{_DOMAIN}block_stats_read_bytes_total",
    "vm_disk_written_bytes_total": f"{_DOMAIN}block_stats_write_bytes_total",
    "vm_disk_reads_total": f"{_DOMAIN}block_stats_read_requests_total",
    "vm_disk_writes_total": f"{_DOMAIN}block_stats_write_requests_total",
    "vm_disk_read_seconds_total": f"{_DOMAIN}block_stats_read_time_seconds_total",
    "vm_disk_write_seconds_total": f"{_DOMAIN}block_stats_write_time_seconds_total",
    "vm_network_received_bytes_total": f"{_DOMAIN}interface_stats_receive_bytes_total",
    "vm_network_sent_bytes_total": f"{_DOMAIN}interface_stats_transmit_bytes_total",
    "vm_network_received_packets_total": f"{_DOMAIN}interface_stats_receive_packets_total",
    "vm_network_sent_packets_total": f"{_DOMAIN}interface_stats_transmit_packets_total",
    "vm_network_received_errors_total": f"{_DOMAIN}interface_stats_receive_errors_total",
    "vm_network_sent_errors_total": f"{_DOMAIN}interface_stats_transmit_errors_total",
    "vm_network_received_drops_total": f"{_DOMAIN}interface_stats_receive_drops_total",
    "vm_network_sent_drops_total": f"{_DOMAIN}interface_stats_transmit_drops_total",
}
"""By quantity. Source: README of the libvirt exporter that Debian packages (prometheus-libvirt-exporter 0.2)."""

HARDWARE_NAMES: Final[Mapping[tuple[str, str], tuple[str, Mapping[str, str]]]] = {
    ("gpu_utilization_ratio", ""): ("hw.gpu.utilization", {"hw.gpu.task": "general"}),
    ("gpu_encoder_ratio", ""): ("hw.gpu.utilization", {"hw.gpu.task": "encoder"}),
    ("gpu_decoder_ratio", ""): ("hw.gpu.utilization", {"hw.gpu.task": "decoder"}),
    ("gpu_memory_used_bytes", ""): ("hw.gpu.memory.usage", {}),
    ("gpu_memory_total_bytes", ""): ("hw.gpu.memory.limit", {}),
    ("gpu_pcie_sent_bytes_total", ""): ("hw.gpu.io", {"network.io.direction": "transmit"}),
    ("gpu_pcie_received_bytes_total", ""): ("hw.gpu.io", {"network.io.direction": "receive"}),
    ("gpu_ecc_errors_total", "corrected"): ("hw.errors", {"error.type": "corrected"}),
    ("gpu_ecc_errors_total", "uncorrected"): ("hw.errors", {"error.type": "uncorrected"}),
    ("gpu_energy_joules_total", ""): ("hw.energy", {}),
    ("gpu_power_watts", ""): ("hw.power", {}),
    ("gpu_temperature_celsius", "gpu"): ("hw.temperature", {"hw.sensor_location": "gpu"}),
    ("gpu_temperature_celsius", "memory"): ("hw.temperature", {"hw.sensor_location": "memory"}),
}
"""By quantity and label what OpenTelemetry calls it, and attributes. Source: its semantic conventions for hardware, as
``opentelemetry-semantic-conventions`` 0.66b2 has them (in development there)."""


def metric_name(quantity: str) -> str:
    """What the metric of a quantity is called: as elsewhere, where it is known elsewhere."""
    return LIBVIRT_NAMES.get(quantity, f"vgpuctl_{quantity}")


class DcgmName(TableRow):
    """One field of DCGM that says the same as a quantity."""

    quantity: str
    label: str = ""
    """Value of the quantity's label."""
    legacy: str
    renamed: str
    """Since DCGM 4.6.0."""
    factor: float
    """From the quantity's unit to the field's."""
    source: str

    @field_validator("quantity")
    @classmethod
    def _is_known(cls, name: str) -> str:
        """:raises ValueError: there is no such quantity"""
        if name not in BY_NAME:
            raise ValueError(f"no quantity is called {name}")
        return name

    def name(self, names: DcgmNames) -> str:
        """In one of the two spellings."""
        return self.legacy if names == "legacy" else self.renamed


@cache
def dcgm_names() -> tuple[DcgmName, ...]:
    """All rows. :raises InvalidInput: ``catalogue.invalid``"""
    return read_table(profiles_directory() / "nvidia" / "dcgm_names.csv", DcgmName)
