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
