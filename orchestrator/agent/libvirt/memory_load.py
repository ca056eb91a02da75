# SPDX-License-Identifier: Apache-2.0
"""How much memory a running domain's guest uses, and how fast it writes there."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import libvirt

_CALC_S: Final = 1
"""QEMU samples pages for so long; libvirt takes 1 to 60."""
_WAIT_S: Final = 3.0
_POLL_S: Final = 0.1
_MEASURED: Final = 2
"""virDomainDirtyRateStatus"""
_KIB: Final = 1024


def memory_load(vm: str, connection: Any) -> tuple[int, int | None]:
    """Bytes that its guest uses, as far as it tells, and that it writes in a second."""
    domain = connection.lookupByUUIDString(vm)
    used_kib = domain.info()[2]
    with suppress(libvirt.libvirtError):
        stats = domain.memoryStats()
        used_kib = min(used_kib, stats.get("available", used_kib) - stats.get("unused", 0))
    try:
        return used_kib * _KIB, _written_per_s(connection, domain)
    except (libvirt.libvirtError, AttributeError):  # of a libvirt or QEMU that does not measure it
        return used_kib * _KIB, None


def _written_per_s(connection: Any, domain: Any) -> int | None:
    domain.startDirtyRateCalc(_CALC_S)
    end = time.monotonic() + _WAIT_S
    while time.monotonic() < end:
        time.sleep(_POLL_S)
        ((_, stats),) = connection.domainListGetStats([domain], libvirt.VIR_DOMAIN_STATS_DIRTYRATE)
        if stats.get("dirtyrate.calc_status") == _MEASURED:
            return int(stats["dirtyrate.megabytes_per_second"]) * 1024**2
    return None
