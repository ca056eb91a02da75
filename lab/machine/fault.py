# SPDX-License-Identifier: Apache-2.0
"""Failures that the lab's kernel module can be told to show (lab/tools/README.md)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

SWITCHES = ("fault_create", "lost", "held", "xid", "sensors", "heterogeneous", "migration")


def fault_command(gpu: int, switch: str, value: Sequence[str]) -> str:
    """The shell line for the host; fails there with the kernel's word for a value it does not take. Its lines are
    written at once: each write is all that the file holds."""
    said = f"printf '%s\\n' {shlex.quote(' '.join(value))}"
    return f"{said} | dd of=/sys/kernel/vgpu_lab/gpus/{gpu}/{switch} bs=4096 iflag=fullblock status=none"
