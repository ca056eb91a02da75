# SPDX-License-Identifier: Apache-2.0
"""Which partitions there are and which are active; answers carry the numbers of NVIDIA's fmReturn_t."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUCCESS, BADPARAM, NOT_SUPPORTED, IN_USE, NOT_CONFIGURED, CONNECTION_NOT_VALID = 0, -1, -3, -7, -8, -9
SHARED_NVSWITCH, VGPU = 1, 2
# The version fields of NVIDIA's structs: their number in the top byte, their size below.
LIST_VERSION, UNSUPPORTED_VERSION, FAILED_VERSION = 0x0102030C, 0x01001208, 0x010028BC
MAX_NVLINKS = 18
LINE_RATE_MBPS = 26562


class Partitions:
    """``fabric`` is what the loader wrote: ``partitions`` (id, gpus, nvlinks) and ``gpus`` (module_id, uuid, pci;
    ``physical_id`` where the fabric manager numbers them otherwise, as on HGX A100)."""

    def __init__(self, fabric: dict[str, Any], mode: int, restarted: bool, devices: Path) -> None:
        self._members: dict[int, list[int]] = {entry["id"]: entry["gpus"] for entry in fabric["partitions"]}
        self._nvlinks: dict[int, int] = {entry["id"]: entry["nvlinks"] for entry in fabric["partitions"]}
        self._gpus: dict[int, dict[str, Any]] = {
            entry.get("physical_id", entry["module_id"]): entry for entry in fabric["gpus"]
        }
        self._mode = mode
        self._waits = restarted
        self._devices = devices
        self._active: set[int] = set()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """``{"code": fmReturn, "body": …}`` for ``{"call": NAME, "ids": [partition, …]}``."""
        if self._mode not in {SHARED_NVSWITCH, VGPU}:
            return {"code": NOT_SUPPORTED}
        calls = {"activate": self._activate, "deactivate": self._deactivate, "set": self._set}
        call = str(request.get("call"))
        if call in calls:
            return {"code": calls[call](request.get("ids", []))}
        return {"code": SUCCESS, "body": self._failed() if call == "failed" else self._list(call)}

    def _activate(self, ids: Sequence[int]) -> int:
        if self._waits:
            return NOT_CONFIGURED
        if ids[0] not in self._members:
            return BADPARAM
        taken = {gpu for active in self._active for gpu in self._members[active]}
        if taken & set(self._members[ids[0]]):
            return IN_USE
        self._active.add(ids[0])
        return SUCCESS

    def _deactivate(self, ids: Sequence[int]) -> int:
        if self._waits:
            return NOT_CONFIGURED
        if ids[0] not in self._active:
            return BADPARAM
        self._active.remove(ids[0])
        return SUCCESS

    def _set(self, ids: Sequence[int]) -> int:
        """After a restart in the resilient mode: what runs; it ends the waiting."""
        if not self._waits:
            return NOT_SUPPORTED
        gpus = [gpu for partition in ids for gpu in self._members.get(partition, [0, 0])]
        if len(gpus) != len(set(gpus)):
            return BADPARAM
        self._active, self._waits = set(ids), False
        return SUCCESS

    def _asked(self) -> dict[int, dict[str, Any]]:
        """GPUs that can be: another driver has none of them."""
        return {number: gpu for number, gpu in self._gpus.items() if _driver(self._devices / gpu["pci"]) == "nvidia"}

    def _gpu(self, module_id: int, gpu: dict[str, Any] | None, nvlinks: int) -> dict[str, Any]:
        return {
            "physicalId": module_id,
            "uuid": gpu["uuid"] if gpu else "",
            "pciBusId": f"0000{gpu['pci'].upper()}" if gpu else "",
            "numNvLinksAvailable": nvlinks,
            "maxNumNvLinks": MAX_NVLINKS,
            "nvlinkLineRateMBps": LINE_RATE_MBPS,
        }

    def _list(self, call: str) -> dict[str, Any]:
        possible = {number: set(gpus) <= set(self._gpus) for number, gpus in self._members.items()}
        if call == "unsupported":
            found = [number for number, there in possible.items() if not there]
            gpus = ((number, self._members[number]) for number in found)
            missing = [{"partitionId": n, "numGpus": len(ids), "gpuPhysicalIds": ids} for n, ids in gpus]
            return {"version": UNSUPPORTED_VERSION, "numPartitions": len(missing), "partitionInfo": missing}
        asked = self._asked()
        rows = [
            {
                "partitionId": number,
                "isActive": int(number in self._active),
                "numGpus": len(gpus),
                "gpuInfo": [self._gpu(gpu, asked.get(gpu), self._nvlinks[number]) for gpu in gpus],
            }
            for number, gpus in self._members.items()
            if possible[number]
        ]
        return {
            "version": LIST_VERSION,
            "numPartitions": len(rows),
            "maxNumPartitions": len(self._members),
            "partitionInfo": rows,
        }

    def _failed(self) -> dict[str, Any]:
        return {"version": FAILED_VERSION, "numGpus": 0, "numSwitches": 0, "gpuInfo": [], "switchInfo": []}


def _driver(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return ""
