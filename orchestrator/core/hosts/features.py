# SPDX-License-Identifier: Apache-2.0
"""What a host's software can give VMs, yes or no. A feature is a name and a row here, and how a host finds it
(agent/sysfs/machine.py). Whether a VM has it is said by its firmware, or by a field of the feature's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

HostFeature = Literal["uefi", "tpm"]
SWITCHES: Final[tuple[HostFeature, ...]] = ("tpm",)
"""Fields of these names, true or false, say it of a VM's shape (None: as its profile), an offering and a domain."""


@dataclass(frozen=True, kw_only=True)
class FeaturesFound:
    """Of a host, by the names of the features; None: not told."""

    uefi: bool | None = None
    """Whether VMs can boot by UEFI there, without Secure Boot; None: not told."""
    tpm: bool | None = None
    """Whether VMs can have a TPM 2.0 there; None: not told."""


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
    label: str
    """Of its line where a VM or an offering that has it is shown."""
    of_offering: str
    """What that line says of an offering."""
    of_vm: str = ""
    """The same of a VM; only switches are shown there."""
    code: str
    """Of the refusal of a host without it."""


FEATURES: Final[dict[HostFeature, FeatureText]] = {
    "uefi": FeatureText(
        title="UEFI for VMs",
        given_by="OVMF",
        missing="no UEFI firmware for VMs",
        package="ovmf (RHEL: edk2-ovmf)",
        asked_by="offerings with firmware: uefi",
        label="firmware",
        of_offering="UEFI, without Secure Boot",
        code="host.no_uefi",
    ),
    "tpm": FeatureText(
        title="TPM for VMs",
        given_by="swtpm",
        missing="no software TPM for VMs",
        package="swtpm and swtpm-tools (RHEL: swtpm)",
        asked_by="VMs with a TPM",
        label="TPM",
        of_offering="2.0, of each VM",
        of_vm="2.0, of its own",
        code="host.no_swtpm",
    ),
}


def features_of(firmware: str | None, switches: Mapping[str, object]) -> tuple[HostFeature, ...]:
    """Those that a VM has or an offering gives: by its firmware, and by what its fields say."""
    return tuple(feature for feature in FEATURES if feature == firmware or switches.get(feature))
