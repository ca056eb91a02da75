# SPDX-License-Identifier: Apache-2.0
"""Driver bundles that a control plane holds, signed by somebody."""

from __future__ import annotations

import tempfile
from pathlib import Path

from orchestrator.core.drivers.bundle import DriverBundle, NewBundle
from orchestrator.core.drivers.lock import DriverLock, Locked
from tests.fakes.control_plane import ControlPlane
from tests.fakes.driver_files import Signer, run_file


def with_bundle(plane: ControlPlane, version: str, *, flavour: str = "vgpu-kvm") -> DriverBundle:
    """NVIDIA's vGPU manager of that version, as far as its header goes; ``grid``: its driver for guests."""
    return with_file(plane, run_file(f"NVIDIA-Linux-x86_64-{version}-{flavour}"))


def with_file(plane: ControlPlane, content: bytes) -> DriverBundle:
    """Whatever is installed from such a file."""
    signer = Signer()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "driver.run"
        path.write_bytes(content)
        return plane.services.driver_bundles.add(
            NewBundle(source=str(path), signature=signer.sign(content), key=signer.key)
        )


def with_locked_driver(plane: ControlPlane, version: str, *, before: str | None = None) -> DriverBundle:
    """``before``: the version to go back to, whose bundle is there as well."""
    if before is not None:
        with_bundle(plane, before)
    bundle = with_bundle(plane, version)
    plane.services.driver_locks.apply(DriverLock(site=(Locked(component="host_driver", version=version),)))
    return bundle
