# SPDX-License-Identifier: Apache-2.0
"""What was put into a VM's guest, for people."""

from __future__ import annotations

from typing import Final

from orchestrator.cli.ages import show_time
from orchestrator.cli.output import render_details, shown
from orchestrator.client.connection import Json

_FACTS: Final = (
    ("guest system", "system"),
    ("guest kernel", "kernel"),
    ("guest driver", "driver"),
    ("guest GPUs", "gpus"),
    ("CUDA of the driver", "cuda_driver"),
    ("CUDA devices", "cuda_devices"),
    ("CUDA toolkit", "cuda_toolkit"),
    ("cuDNN", "cudnn"),
    ("NCCL", "nccl"),
    ("devices that NCCL summed over", "nccl_devices"),
    ("Docker", "docker"),
    ("container toolkit", "container_toolkit"),
    ("containerd", "containerd"),
    ("kubelet", "kubelet"),
    ("device plugin", "device_plugin"),
)


def guest_lines(guest: Json) -> list[str]:
    """Nothing when nothing was."""
    details = guest_details(guest)
    return render_details(details) if details else []


def guest_details(guest: Json) -> list[tuple[str, str]]:
    """Labels and what to say of each."""
    results = [(shown(result["role"]), _result(result)) for result in guest["results"]]
    facts = [(label, shown(guest["facts"][key])) for label, key in _FACTS if guest["facts"].get(key)]
    licence = _licence(
        guest.get("licence"), is_wanted=any(result["role"] == "guest_licence" for result in guest["results"])
    )
    return [*results, *facts, *licence]


def _licence(licence: Json | None, *, is_wanted: bool) -> list[tuple[str, str]]:
    """Unlicensed or not told is news of a guest that was given a token. An older server does not say."""
    if licence is None or (licence["state"] == "unknown" and not is_wanted):
        return []
    until = "" if licence["until"] is None else f" until {show_time(licence['until'])}"
    return [("licence", f"{shown(licence['state'])}{until}")]


def _result(result: Json) -> str:
    failed = "" if result["failed_task"] is None else f": {shown(result['failed_task'])}"
    return f"{shown(result['state'])}{failed}, {show_time(result['at'])}"
