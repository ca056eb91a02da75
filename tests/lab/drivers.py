# SPDX-License-Identifier: Apache-2.0
"""Drivers for lab hosts, signed and taken by a control plane, and what of them is on a host."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fakes.driver_files import Signer
from tests.lab.conftest import LabHost, lab
from tests.lab.product import Product

PROVISIONED_WITHIN_S = 1400.0
"""An emulated host needs one to two minutes for a driver, and twice that where it goes back."""


def built(directory: Path, version: str, fails: str = "none") -> tuple[Path, Path, Path]:
    """A driver of that version, its signature and the signer's key, in a directory of their own below that one."""
    signer, place = Signer(), directory / f"{version}-{fails}"
    place.mkdir()
    path = Path(lab("driver-bundle", "--version", version, "--fails", fails, "--directory", str(place)).strip())
    signature, key = place / "driver.asc", place / "site-key.asc"
    signature.write_text(signer.sign(path.read_bytes()))
    key.write_text(signer.key)
    return path, signature, key


def taken(path: Path, signature: Path, key: Path) -> tuple[str, ...]:
    """The words that bring such a file."""
    return "driver", "bundle", "add", str(path), "--signature", str(signature), "--key", str(key)


def bring(product: Product, directory: Path, version: str, fails: str = "none") -> None:
    """Such a driver becomes a bundle."""
    product.ok(*taken(*built(directory, version, fails)))


def lock(product: Product, directory: Path, version: str) -> None:
    """All hosts are to have it."""
    file = directory / "drivers.lock.yaml"
    file.write_text(f"schema_version: 1\nsite:\n  host_driver: {version}\n")
    product.ok("driver", "lock", "apply", str(file))


def loaded(host: LabHost) -> str | None:
    """The version that the kernel gives; None: no driver is loaded."""
    found = re.search(r"Module\s+(\S+)", host.run("cat /proc/driver/nvidia/version 2>/dev/null || true"))
    return None if found is None else found[1]


def module_file(host: LabHost) -> str:
    """When the module's file was written, and which swap was the last."""
    return host.run("stat -c %Y /usr/lib/modules/$(uname -r)/updates/nvidia.ko; cat /run/vgpuctl-driver")
