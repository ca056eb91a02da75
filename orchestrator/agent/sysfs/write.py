# SPDX-License-Identifier: Apache-2.0
"""Writing to a kernel file that may never return: the write is made by a child with a deadline.

What the kernel's errno means when a vGPU is made or removed is from linux drivers/vfio/mdev/mdev_core.c and
mdev_sysfs.c and, for EIO and EPERM, NVIDIA/open-gpu-kernel-modules tag 595.45.04. Which errno stands for "no room left"
differs between drivers (ENOSPC, EINVAL, EUSERS): the caller reads capacity first.
"""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.agent.sysfs import reading
from orchestrator.core.errors import Fatal, Retryable, Unknown, WorldError


@dataclass(frozen=True)
class ErrorTranslation:
    family: type[WorldError]
    code: str
    message: str
    hint: str


MEANINGS: dict[int, ErrorTranslation] = {
    errno.EBUSY: ErrorTranslation(Retryable, "vgpu.busy", "the GPU driver is busy", "try again"),
    errno.EAGAIN: ErrorTranslation(Retryable, "vgpu.busy", "the GPU driver is busy with this device", "try again"),
    errno.EINTR: ErrorTranslation(Retryable, "vgpu.busy", "the GPU driver was interrupted", "try again"),
    errno.EIO: ErrorTranslation(
        Fatal, "vgpu.driver_refused", "the GPU driver refused the vGPU", "read the NVRM lines of the host's kernel log"
    ),
    errno.ENOSPC: ErrorTranslation(
        Fatal,
        "vgpu.no_room",
        "the GPU has no room left for this type",
        "'vgpuctl gpu list --host HOST' tells what is free",
    ),
    errno.EUSERS: ErrorTranslation(
        Fatal,
        "vgpu.no_room",
        "the GPU has no instance left of this type",
        "'vgpuctl gpu list --host HOST' tells what is free",
    ),
    errno.ENOMEM: ErrorTranslation(
        Retryable, "vgpu.no_memory", "the host's kernel has no memory for the vGPU", "try again"
    ),
    errno.EINVAL: ErrorTranslation(
        Fatal,
        "vgpu.type_refused",
        "the GPU driver does not take this type here",
        "'vgpuctl gpu list --host HOST' tells what fits",
    ),
    errno.ERANGE: ErrorTranslation(
        Fatal,
        "vgpu.type_refused",
        "the GPU driver does not know this type",
        "'vgpuctl gpu list --host HOST' tells what fits",
    ),
    errno.EPERM: ErrorTranslation(
        Fatal, "vgpu.state_changed", "the virtual function has a vGPU already or none any more", "look at the host"
    ),
    errno.EACCES: ErrorTranslation(
        Fatal, "vgpu.not_permitted", "the agent may not write this file", "run the agent as root"
    ),
    errno.EROFS: ErrorTranslation(
        Fatal, "vgpu.not_permitted", "the host's sysfs is read-only", "look at the host's mounts"
    ),
    errno.ENODEV: ErrorTranslation(Fatal, "vgpu.gpu_gone", "the GPU is gone", "look at the host's kernel log"),
    errno.ENXIO: ErrorTranslation(Fatal, "vgpu.gpu_gone", "the GPU does not answer", "look at the host's kernel log"),
    errno.ENOENT: ErrorTranslation(
        Fatal, "vgpu.function_gone", "the PCI function or type is not there", "are virtual functions enabled?"
    ),
    errno.EEXIST: ErrorTranslation(
        Fatal, "vgpu.uuid_taken", "a mediated device with this UUID exists", "use another UUID"
    ),
}

OTHER = ErrorTranslation(
    Fatal, "vgpu.driver_refused", "the GPU driver refused the vGPU", "read the NVRM lines of the host's kernel log"
)


def error_for(number: int, path: Path, value: str) -> WorldError:
    """The error to raise when writing ``value`` to ``path`` failed with errno ``number``."""
    meaning = MEANINGS.get(number, OTHER)
    name = errno.errorcode.get(number, str(number))
    return meaning.family(
        meaning.code,
        meaning.message,
        hint=meaning.hint,
        details=f"writing {value!r} to {path}: {name} ({os.strerror(number) if number > 0 else 'killed'})",
    )


WRITE_SECONDS = 30.0

_CHILD = """
import os, sys
try:
    file = os.open(sys.argv[1], os.O_WRONLY)
    os.write(file, sys.argv[2].encode())
except OSError as error:
    sys.exit(error.errno)
"""
"""The exit code is the errno, so that it cannot get lost in somebody's translated text."""


def child_argv(path: Path, value: str) -> list[str]:
    """The child that writes ``value`` to ``path``."""
    return [sys.executable, "-I", "-S", "-c", _CHILD, str(path), value]


def write_errno(path: Path, value: str, *, limit_s: float = WRITE_SECONDS) -> int:
    """0, or the errno of opening or writing.

    :raises Unknown: ``vgpu.create_hung`` when the kernel did not come back in time; read the state, then decide
    """
    try:
        return run(child_argv(path, value), limit_s=limit_s).code
    except ChildHangs as error:
        raise Unknown(
            "vgpu.create_hung",
            "the GPU driver did not answer in time",
            hint="look at the host's kernel log; a vGPU that appears later is given back",
            details=f"writing {value!r} to {path} took over {limit_s:g} s",
        ) from error


def is_being_written(paths: Paths, path: Path) -> bool:
    """Whether a child of ours, this agent's or a former one's, is still in the kernel with a write to ``path``.

    Read from the command lines of all processes: a child in uninterruptible sleep outlives the agent that made it.
    """
    for process in reading.names(paths.proc):
        if process.isdecimal():
            words = (reading.text(paths.proc / process / "cmdline") or "").split("\0")
            if _CHILD in words and str(path) in words:
                return True
    return False


def write(path: Path, value: str, *, limit_s: float = WRITE_SECONDS) -> None:
    """:raises WorldError: by :data:`MEANINGS`"""
    number = write_errno(path, value, limit_s=limit_s)
    if number:
        raise error_for(number, path, value)
