# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all, under names that cannot lead anywhere else."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.core.errors import Fatal, InvalidInput

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}", re.ASCII)
_PARTIAL = ".part-"
_BLOCK = 512
"""What ``st_blocks`` counts in."""


def check_file_name(name: str) -> str:
    """:raises InvalidInput: ``host.file_name_invalid``"""
    if _NAME.fullmatch(name) is None or _PARTIAL in name:
        raise InvalidInput("host.file_name_invalid", f"{ascii(name)[:70]} is not a legal file name here")
    return name


def is_partial(path: Path) -> bool:
    """Whether the file is still being written."""
    return _PARTIAL in path.name


def taken(path: Path) -> int:
    """Bytes that a file takes of its file system, without its holes; none of one that is gone."""
    try:
        return path.lstat().st_blocks * _BLOCK
    except FileNotFoundError:
        return 0


def length(path: Path) -> int:
    """Bytes of a file, with its holes; none of one that is gone."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def written_whole(target: Path, *, mode: int, check: Callable[[], None] | None = None) -> Iterator[Path]:
    """A path to write to; when the block ends well the file is synced to disk and renamed to ``target``. ``check``:
    called directly before that; if it raises, nothing is there.

    :raises Fatal: ``host.disk_full``, ``host.storage_failed``
    """
    with scratch(target) as part:
        yield part
        part.chmod(mode)
        sync(part)
        if check is not None:
            check()
        part.replace(target)
        sync(target.parent)


@contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """A path to write to that is gone when the block ends, or when the agent is started again.

    :raises Fatal: ``host.disk_full``, ``host.storage_failed``"""
    part = beside.with_name(f"{beside.name}{_PARTIAL}{secrets.token_hex(8)}")
    try:
        yield part
    except OSError as error:
        raise storage_error(error) from error
    finally:
        part.unlink(missing_ok=True)


def check_free(directory: Path, needed: int, what: str = "a copy") -> None:
    """:raises Fatal: ``host.disk_full``"""
    check_enough(shutil.disk_usage(directory).free, needed, what)


def check_enough(free: int, needed: int, what: str = "a copy") -> None:
    """For what is to be written. :raises Fatal: ``host.disk_full``"""
    if free < needed:
        hint = "free space below the agent's storage directory"
        details = f"{free} of {needed} bytes are free"
        raise Fatal("host.disk_full", f"the host's disk has no room for {what}", hint=hint, details=details)


def remove_parts(target: Path) -> None:
    """What writing to a file that is removed has left beside it, as where a host died: in a pool nothing else does."""
    for part in target.parent.glob(f"{target.name}{_PARTIAL}*"):
        part.unlink(missing_ok=True)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> bool:
    """Whether there was a file to remove."""
    try:
        path.unlink()
        sync(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_error(error) from error
    return True


def storage_error(error: OSError) -> Fatal:
    """An error of the host's file system as one of ours."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Fatal(
        "host.disk_full" if full else "host.storage_failed",
        "the host's disk is full" if full else "the host's storage does not work",
        hint="free space below the agent's storage directory" if full else "look at the host's kernel log",
        details=str(error),
    )


def remove_partial_files(directory: Path) -> None:
    """What a crash left half-written. Only safe before anything writes."""
    for path in directory.glob(f"*{_PARTIAL}*"):
        path.unlink(missing_ok=True)
