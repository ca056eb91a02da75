# SPDX-License-Identifier: Apache-2.0
"""Which driver a PCI function has, giving it to another one, and resetting it.

Layout: Linux Documentation/ABI/testing/sysfs-bus-pci (driver_override, reset, reset_method) and sysfs-bus-pci's
drivers/<name>/bind and unbind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.agent.sysfs import reading
from orchestrator.agent.sysfs.write import is_being_written
from orchestrator.core.errors import Fatal, Unknown
from orchestrator.core.gpu.health import WAS_RESET

VFIO = "vfio-pci"

KernelWrite = Callable[[Path, str], None]
_NO_OVERRIDE = "(null)"
_MODPROBE_SECONDS = 30.0
_GONE = b"\xff\xff"
"""What a function that does not answer reads as."""


def driver_of(paths: Paths, address: str) -> str | None:
    return reading.link_name(paths.pci(address) / "driver")


def is_passed_through(paths: Paths, address: str) -> bool:
    """Whether vfio-pci has it."""
    return driver_of(paths, address) == VFIO


def override_of(paths: Paths, address: str) -> str:
    """The only driver that may have it; empty: any that knows it."""
    text = reading.text(paths.pci(address) / "driver_override") or ""
    return "" if text == _NO_OVERRIDE else text


def load_vfio(paths: Paths) -> None:
    """:raises Fatal: ``host.no_vfio``"""
    if (paths.pci_drivers / VFIO).is_dir():
        return
    try:
        loaded = run(["modprobe", VFIO], limit_s=_MODPROBE_SECONDS)
        output = loaded.output
    except (OSError, ChildHangs) as error:
        output = str(error)
    if not (paths.pci_drivers / VFIO).is_dir():
        raise Fatal("host.no_vfio", "the host's kernel has no vfio-pci", hint="modprobe vfio-pci", details=output)


def set_override(paths: Paths, write: KernelWrite, address: str, driver: str) -> None:
    """Empty: none."""
    if override_of(paths, address) != driver:
        write(paths.pci(address) / "driver_override", driver or "\n")


def move(paths: Paths, write: KernelWrite, address: str, driver: str | None) -> None:
    """Give the function to ``driver``; None: to none. With it already is fine.

    :raises Fatal: ``gpu.bind_refused``; :raises Unknown: ``gpu.bind_hung``
    """
    now = driver_of(paths, address)
    if now == driver:
        return
    if now is not None:
        _settled_write(paths, write, paths.pci_drivers / now / "unbind", address)
    if driver is not None:
        _settled_write(paths, write, paths.pci_drivers / driver / "bind", address)
    if driver_of(paths, address) != driver:
        raise Fatal(
            "gpu.bind_refused",
            f"{driver or 'no driver'} was to have {address}, and {driver_of(paths, address) or 'no driver'} has it",
            hint="read the host's kernel log",
        )


def probe(paths: Paths, write: KernelWrite, address: str) -> None:
    """Let the kernel find a driver for a function that has none; that none knows it is fine."""
    if driver_of(paths, address) is None:
        _settled_write(paths, write, paths.pci_drivers.parent / "drivers_probe", address)


def _settled_write(paths: Paths, write: KernelWrite, file: Path, address: str) -> None:
    """Drivers that are busy with a function keep whoever unbinds them waiting: nobody writes again meanwhile."""
    if is_being_written(paths, file):
        raise _hung(file, address)
    try:
        write(file, address)
    except Unknown as error:
        raise _hung(file, address) from error
    except Fatal as error:
        raise Fatal(
            "gpu.bind_refused",
            f"the kernel did not {file.name} {address} {'to' if file.name == 'bind' else 'from'} {file.parent.name}",
            hint="read the host's kernel log",
            details=error.details,
        ) from error


def _hung(file: Path, address: str) -> Unknown:
    return Unknown(
        "gpu.bind_hung",
        f"{file.parent.name} has not come back from the {file.name} of {address}",
        hint="look at the host's kernel log",
        details=str(file),
    )


def reset_methods(paths: Paths, address: str) -> tuple[str, ...]:
    """Those that the kernel tries, the first one first (``flr bus``), and that reset all of it: from a change of its
    power state (``pm``) memory may come back as it was."""
    return tuple(name for name in _methods(paths, address) if name != "pm")


def _methods(paths: Paths, address: str) -> list[str]:
    return (reading.text(paths.pci(address) / "reset_method") or "").split()


def reset(paths: Paths, write: KernelWrite, address: str) -> Literal["", "bus_reset", "flr"]:
    """Reset it and see it answer again. The kernel log is told, so that what was wrong with it before is over. "": the
    kernel has nothing that resets all of it, of one that a VM was given before that was asked.

    :raises Fatal: ``gpu.reset_failed``
    """
    details, methods = None, reset_methods(paths, address)
    try:
        if methods and list(methods) != _methods(paths, address):
            write(paths.pci(address) / "reset_method", " ".join(methods))
        write(paths.pci(address) / "reset", "1")
    except (Fatal, Unknown) as error:
        details = error.details
    if details is not None or not _answers(paths, address):
        raise Fatal(
            "gpu.reset_failed",
            f"GPU {address} did not come back from its reset",
            hint="it is given to nobody until a reset succeeds: reboot the host, then retry the operation",
            details=details or "it reads as ff from its configuration space",
        )
    with suppress(OSError):  # then it is only known later that it is well
        log = os.open(paths.kernel_log, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(log, WAS_RESET.format(gpu=address).encode())
        finally:
            os.close(log)
    if not methods:
        return ""
    return "bus_reset" if methods[0] == "bus" else "flr"


def _answers(paths: Paths, address: str) -> bool:
    try:
        with (paths.pci(address) / "config").open("rb") as config:
            return config.read(2) not in {b"", _GONE}
    except OSError:
        return False
