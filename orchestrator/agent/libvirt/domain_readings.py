# SPDX-License-Identifier: Apache-2.0
"""What our VMs use of the host, in one question to libvirt (virConnectGetAllDomainStats). A domain that another call
waits for tells less instead of holding the others up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import libvirt

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domains import domain_key
from orchestrator.core.readings.frame import Key, Reading, arranged

_LIMIT_S: Final = 5.0
_STATS: Final = (
    libvirt.VIR_DOMAIN_STATS_STATE
    | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_VCPU
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
    | libvirt.VIR_DOMAIN_STATS_BLOCK
)
_KIB: Final = 1024.0
_MAX_DEVICES: Final = 40
"""Disks or network cards of one VM."""
_WHOLE: Final[Mapping[str, tuple[str, float]]] = {
    "balloon.maximum": ("vm_memory_maximum_bytes", _KIB),
    "balloon.rss": ("vm_memory_resident_bytes", _KIB),
    "balloon.usable": ("vm_memory_usable_bytes", _KIB),
    "vcpu.current": ("vm_vcpus", 1),
    "cpu.time": ("vm_cpu_seconds_total", 1e-9),
}
_DISK: Final[Mapping[str, tuple[str, float]]] = {
    "rd.bytes": ("vm_disk_read_bytes_total", 1),
    "wr.bytes": ("vm_disk_written_bytes_total", 1),
    "rd.reqs": ("vm_disk_reads_total", 1),
    "wr.reqs": ("vm_disk_writes_total", 1),
    "rd.times": ("vm_disk_read_seconds_total", 1e-9),
    "wr.times": ("vm_disk_write_seconds_total", 1e-9),
}
_NIC: Final[Mapping[str, tuple[str, float]]] = {
    f"{way}.{counter}": (f"vm_network_{direction}_{name}_total", 1)
    for way, direction in (("rx", "received"), ("tx", "sent"))
    for counter, name in (("bytes", "bytes"), ("pkts", "packets"), ("errs", "errors"), ("drop", "drops"))
}


class DomainReadings:
    def __init__(self, host: Libvirt, ledger: Ledger) -> None:
        self._host = host
        self._ledger = ledger

    def read(self) -> tuple[Reading, ...]:
        """:raises WorldError: see Libvirt.call"""
        ours = self._ledger.owned(domain_key(""))
        if not ours:
            return ()
        domains = self._host.call(_all, limit_s=_LIMIT_S)
        return tuple(Reading("vm", vm, *arranged(dict(_numbers(stats)))) for vm, stats in domains if vm in ours)


def _all(connection: Any) -> list[tuple[str, Mapping[str, Any]]]:
    stats = connection.getAllDomainStats(_STATS, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
    return [(domain.UUIDString().lower(), of_domain) for domain, of_domain in stats]


def _numbers(stats: Mapping[str, Any]) -> Iterator[tuple[Key, float]]:
    for field, (name, unit) in _WHOLE.items():
        if field in stats:
            yield (name, ""), stats[field] * unit
    for number in range(min(_MAX_DEVICES, stats.get("block.count", 0))):
        disk = stats.get(f"block.{number}.name", "")
        yield from _device(stats, f"block.{number}", disk, _DISK)
    for number in range(min(_MAX_DEVICES, stats.get("net.count", 0))):
        yield from _device(stats, f"net.{number}", str(number), _NIC)


def _device(
    stats: Mapping[str, Any], prefix: str, label: str, names: Mapping[str, tuple[str, float]]
) -> Iterator[tuple[Key, float]]:
    for field, (name, unit) in names.items():
        value = stats.get(f"{prefix}.{field}")
        if value is not None:
            yield (name, label), value * unit
