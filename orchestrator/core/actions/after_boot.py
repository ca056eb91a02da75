# SPDX-License-Identifier: Apache-2.0
"""How an agent says what did not come back when its host had booted, and how that is found again in what it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_AGAIN = " again after the reboot: "


def layout_not_back(why: str) -> str:
    """A line about the GPU instances that stand without VMs."""
    return f"a MIG layout is not there{_AGAIN}{why}"


def vm_not_back(vm: str, why: str) -> str:
    """A line about a VM, by its id."""
    return f"VM {vm} is not running{_AGAIN}{why}"


def why_not_back(vm: str, problems: Iterable[str]) -> str | None:
    """What the agent said of this VM; None: nothing. ``problems``: of the host's observation."""
    begin = vm_not_back(vm, "")
    return next((line.removeprefix(begin) for line in problems if line.startswith(begin)), None)


def not_on_bus(gpus: Sequence[str]) -> str:
    """GPUs that are gone. ``gpus``: PCI addresses, at least one."""
    return f"GPU {', '.join(gpus)} is not on the host's bus"
