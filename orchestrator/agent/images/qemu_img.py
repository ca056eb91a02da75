# SPDX-License-Identifier: Apache-2.0
"""qemu-img, always with explicit formats and with limits: an image is somebody's untrusted input."""

from __future__ import annotations

from pathlib import Path

from orchestrator.agent.process import ChildHangs, run
from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.errors import Fatal, Unknown

_LIMITS = ("prlimit", "--as=2147483648", "--cpu=30", "--core=0", "--")
_SECONDS = 60.0


def create_overlay(path: Path, *, base: Path, base_format: ImageFormat, size_bytes: int) -> None:
    """A qcow2 file at ``path`` that shows ``base`` and takes the writes.

    :raises Fatal: ``volume.failed``
    :raises Unknown: ``volume.hung``
    """
    argv = [
        *_LIMITS,
        "qemu-img",
        "create",
        "-q",
        "-f",
        "qcow2",
        "-b",
        str(base),
        "-F",
        base_format,
        str(path),
        str(size_bytes),
    ]
    try:
        finished = run(argv, limit_s=_SECONDS)
    except ChildHangs as error:
        raise Unknown("volume.hung", "the host's disk did not answer in time", hint="look at the host") from error
    except OSError as error:
        raise Fatal(
            "volume.failed", "qemu-img is missing on the host", hint="install qemu-utils", details=str(error)
        ) from error
    if finished.code:
        raise Fatal("volume.failed", "the disk could not be made", hint="is the disk full?", details=finished.output)
