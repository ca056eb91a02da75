# SPDX-License-Identifier: Apache-2.0
"""Every quantity that is read on a host: one row here, one reader in the agent. Names, units and labels of metrics,
of the API and of the command line come from this table.

Base units, ratios from 0 to 1, counters end in ``_total`` (OpenMetrics). A label's values are listed, or bounded by a
pattern, so that no host can make series without end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

SubjectKind = Literal["gpu", "gpu_instance", "vgpu", "vm"]
"""What has readings."""
QuantityKind = Literal["gauge", "counter"]

_XID: Final = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_LINK: Final = re.compile(r"[0-9]{1,2}", re.ASCII)
_DEVICE: Final = re.compile(r"[a-z]{2,3}[a-z0-9]{0,12}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """``name`` is that of the metric without its prefix."""

    name: str
    subject: SubjectKind
    kind: QuantityKind
    help: str
    """One sentence without a full stop."""
    label: str = ""
    """Name of the label that tells several numbers of one subject apart; empty: there is one number."""
    values: frozenset[str] | re.Pattern[str] = frozenset()
    """What the label may be."""
    charted: bool = False
    """Kept for five minutes; of all others the last number alone."""

    def has_label(self, value: str) -> bool:
        """Whether ``value`` is one that this quantity can have."""
        if isinstance(self.values, re.Pattern):
            return self.values.fullmatch(value) is not None
        return value in self.values if self.label else not value


def _gpu(
    name: str, text: str, *, label: str = "", values: tuple[str, ...] | re.Pattern[str] = (), charted: bool = False
) -> Quantity:
    return _quantity("gpu", name, text, label, values, charted)


def _instance(name: str, text: str, *, charted: bool = False) -> Quantity:
    return _quantity("gpu_instance", name, text, "", (), charted)


def _vgpu(name: str, text: str, *, charted: bool = False) -> Quantity:
    return _quantity("vgpu", name, text, "", (), charted)


def _vm(
    name: str, text: str, *, label: str = "", values: tuple[str, ...] | re.Pattern[str] = (), charted: bool = False
) -> Quantity:
    return _quantity("vm", name, text, label, values, charted)


def _quantity(
    subject: SubjectKind, name: str, text: str, label: str, values: tuple[str, ...] | re.Pattern[str], charted: bool
) -> Quantity:
    return Quantity(
        name=f"{subject}_{name}",
        subject=subject,
        kind="counter" if name.endswith("_total") else "gauge",
        help=text,
        label=label,
        values=values if isinstance(values, re.Pattern) else frozenset(values),
        charted=charted,
    )


RECOVERY_ACTIONS: Final = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
"""nvml.h, nvmlDeviceGpuRecoveryAction_t, by number."""
_RECOVERY: Final = RECOVERY_ACTIONS[1:]
FATAL_XIDS: Final = (48, 63, 64, 74, 79, 92, 94, 95, 119, 120)
"""Xids that end what runs on a GPU: told from the beginning as 0, so that a first one is seen to be more."""
CLOCK_REASONS: Final = (
    "power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability", "app_clocks", "base_clocks",
)  # fmt: skip
"""nvml.h: NVML_FI_DEV_PERF_POLICY_*, 74 to 81, in nanoseconds."""

QUANTITIES: Final[tuple[Quantity, ...]] = (
    _gpu("utilization_ratio", "Share of the last second in which a kernel ran", charted=True),
    _gpu("memory_copy_ratio", "Share of the last second in which memory was read or written", charted=True),
    _gpu("encoder_ratio", "Use of the video encoder"),
    _gpu("decoder_ratio", "Use of the video decoder"),
    _gpu("engine_active_ratio", "Share of time in which the compute engine was busy (GPM)"),
    _gpu("sm_active_ratio", "Share of time in which a multiprocessor had a warp (GPM)"),
    _gpu("sm_occupancy_ratio", "Warps that were resident, of those that could be (GPM)"),
    _gpu("tensor_active_ratio", "Share of time in which tensor cores were busy (GPM)"),
    _gpu("dram_active_ratio", "Share of time in which memory was active (GPM)"),
    _gpu("memory_used_bytes", "Framebuffer in use", charted=True),
    _gpu("memory_free_bytes", "Framebuffer that is free"),
    _gpu("memory_reserved_bytes", "Framebuffer that the driver keeps for itself"),
    _gpu("memory_total_bytes", "Framebuffer in all", charted=True),
    _gpu("temperature_celsius", "Temperature", label="sensor", values=("gpu", "memory"), charted=True),
    _gpu(
        "temperature_limit_celsius",
        "Where clocks are slowed and where the GPU is switched off",
        label="limit",
        values=("slowdown", "shutdown", "max_operating", "memory_max"),
    ),
    _gpu("temperature_margin_celsius", "Degrees left until clocks are slowed"),
    _gpu("power_watts", "Power that is drawn", charted=True),
    _gpu(
        "power_limit_watts",
        "Power that may be drawn",
        label="limit",
        values=("enforced", "requested", "default", "min", "max"),
    ),
    _gpu("energy_joules_total", "Energy since the driver was loaded"),
    _gpu("clock_hertz", "Clock", label="clock", values=("graphics", "sm", "memory", "video"), charted=True),
    _gpu(
        "clock_limited_seconds_total",
        "Time in which clocks were held below what was asked for",
        label="reason",
        values=CLOCK_REASONS,
    ),
    _gpu(
        "ecc_errors_total",
        "Memory errors since the driver was loaded",
        label="error",
        values=("corrected", "uncorrected"),
    ),
    _gpu(
        "remapped_rows",
        "Rows of memory that were remapped",
        label="cause",
        values=("corrected", "uncorrected"),
    ),
    _gpu("remap_pending", "1: a row is remapped at the next reset"),
    _gpu("remap_failed", "1: a row could not be remapped"),
    _gpu(
        "remap_banks",
        "Banks of memory by the spare rows that are left",
        label="left",
        values=("max", "high", "partial", "low", "none"),
    ),
    _gpu("xid_total", "Errors that the driver has written since the agent began, by number", label="xid", values=_XID),
    _gpu("recovery_action", "1: the driver asks for this", label="action", values=_RECOVERY),
    _gpu("pcie_replays_total", "Packets that were sent again over PCIe"),
    _gpu("pcie_sent_bytes_total", "Bytes sent over PCIe"),
    _gpu("pcie_received_bytes_total", "Bytes received over PCIe"),
    _gpu("pcie_link_width", "Lanes that are in use"),
    _gpu("pcie_link_width_max", "Lanes that GPU and slot have"),
    _gpu("pcie_link_generation", "Generation of PCIe that is in use"),
    _gpu("nvlink_up", "1: the link is up", label="link", values=_LINK),
    _gpu("nvlink_errors_total", "Errors of the link that were recovered from or not", label="link", values=_LINK),
    _gpu("fabric_completed", "1: the GPU has joined its fabric without an error; absent where it has none"),
    _gpu("vgpus", "vGPUs that guests have open"),
    _instance("memory_used_bytes", "Framebuffer in use", charted=True),
    _instance("memory_total_bytes", "Framebuffer in all"),
    _instance("engine_active_ratio", "Share of time in which the compute engine was busy (GPM)", charted=True),
    _instance("sm_active_ratio", "Share of time in which a multiprocessor had a warp (GPM)"),
    _instance("tensor_active_ratio", "Share of time in which tensor cores were busy (GPM)"),
    _instance("dram_active_ratio", "Share of time in which memory was active (GPM)"),
    _vgpu("sm_ratio", "Use of the GPU's multiprocessors by this vGPU", charted=True),
    _vgpu("memory_copy_ratio", "Use of the GPU's memory by this vGPU"),
    _vgpu("encoder_ratio", "Use of the video encoder by this vGPU"),
    _vgpu("decoder_ratio", "Use of the video decoder by this vGPU"),
    _vgpu("memory_used_bytes", "Framebuffer that the guest uses", charted=True),
    _vgpu("memory_total_bytes", "Framebuffer that the vGPU has"),
    _vgpu("licensed", "1: the guest has a licence"),
    _vgpu("license_expiry_timestamp_seconds", "When the licence ends, seconds since 1970"),
    _vgpu("encoder_sessions", "Video encoders that the guest has open"),
    _vgpu("frame_rate_limit", "Frames per second that the driver lets the vGPU draw"),
    _vm("memory_maximum_bytes", "Memory that the guest was given"),
    _vm("memory_resident_bytes", "Memory that the VM's process has on the host", charted=True),
    _vm("memory_usable_bytes", "Memory that the guest could still use, as its balloon driver reports"),
    _vm("vcpus", "Virtual processors"),
    _vm("cpu_seconds_total", "Processor time of the VM", charted=True),
    _vm("disk_read_bytes_total", "Read from the disk", label="disk", values=_DEVICE, charted=True),
    _vm("disk_written_bytes_total", "Written to the disk", label="disk", values=_DEVICE, charted=True),
    _vm("disk_reads_total", "Requests to read from the disk", label="disk", values=_DEVICE),
    _vm("disk_writes_total", "Requests to write to the disk", label="disk", values=_DEVICE),
    _vm("disk_read_seconds_total", "Time that requests to read took", label="disk", values=_DEVICE),
    _vm("disk_write_seconds_total", "Time that requests to write took", label="disk", values=_DEVICE),
    _vm("network_received_bytes_total", "Received by the network card", label="nic", values=_LINK, charted=True),
    _vm("network_sent_bytes_total", "Sent by the network card", label="nic", values=_LINK, charted=True),
    _vm("network_received_packets_total", "Packets received by the network card", label="nic", values=_LINK),
    _vm("network_sent_packets_total", "Packets sent by the network card", label="nic", values=_LINK),
    _vm("network_received_errors_total", "Errors while receiving", label="nic", values=_LINK),
    _vm("network_sent_errors_total", "Errors while sending", label="nic", values=_LINK),
    _vm("network_received_drops_total", "Packets dropped while receiving", label="nic", values=_LINK),
    _vm("network_sent_drops_total", "Packets dropped while sending", label="nic", values=_LINK),
)

BY_NAME: Final[Mapping[str, Quantity]] = {quantity.name: quantity for quantity in QUANTITIES}
