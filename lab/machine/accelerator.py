# SPDX-License-Identifier: Apache-2.0
"""KVM or emulation."""

from __future__ import annotations

from pathlib import Path

from lab.image.base import Base


def has_virtualisation(cpuinfo: str) -> bool:
    """Whether the processor flags promise hardware virtualisation (/dev/kvm alone does not)."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    return bool({"vmx", "svm"} & set(flags.split()))


def accelerator(base: Base, cache: Path) -> str:
    return "tcg"
