# SPDX-License-Identifier: Apache-2.0
"""What a host's software can give VMs, yes or no. A feature is a row here and how a host finds it
(agent/sysfs/machine.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

HostFeature = Literal["uefi", "tpm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureText:
    """A feature for people."""

    title: str
    given_by: str
    """Which software it is."""
    missing: str
    """What a host without it lacks."""
    package: str
    """What an operator installs, on Debian and Ubuntu, and on RHEL."""
    asked_by: str
    """Which offerings need it."""
    code: str
    """Of the refusal of a host without it."""


FEATURES: Final[dict[HostFeature, FeatureText]] = {
    "uefi": FeatureText(
        title="UEFI for VMs",
        given_by="OVMF",
        missing="no UEFI firmware for VMs",
        package="ovmf (RHEL: edk2-ovmf)",
        asked_by="offerings with firmware: uefi",
        code="host.no_uefi",
    ),
    "tpm": FeatureText(
        title="TPM for VMs",
        given_by="swtpm",
        missing="no software TPM for VMs",
        package="swtpm and swtpm-tools (RHEL: swtpm)",
        asked_by="VMs with a TPM",
        code="host.no_swtpm",
    ),
}
