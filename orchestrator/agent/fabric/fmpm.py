# SPDX-License-Identifier: Apache-2.0
"""The fabric manager, asked through the operator's ``fmpm`` (NVIDIA/Fabric-Manager-Client).

``fmpm -l`` prints fmFabricPartitionList_t as JSON; what fails prints ``… fmReturn: -N`` and exits with the low byte
of it (nv_fm_types.h, fmReturn_t). What the program says is believed only as far as it makes sense.

Where it is, says a file of the host's own, which enrolment neither writes nor removes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from orchestrator.agent.fabric.members import ListedPartition, PartitionMember, address_from
from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, ChildTalksTooMuch, Finished, run
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, Retryable, Unknown, VgpuctlError

FILE = "vgpuctl-agent/fabric.json"
"""Below /etc."""
_READ_SECONDS = 30.0
"""A third of what a controller waits for an observation: a host whose guests begin to run may be slow."""
_CHANGE_SECONDS = 60.0
"""Links are trained meanwhile. Read before and after, it stays below what a controller waits for an action."""
_MAX_OUTPUT = 256 * 1024
"""Fifteen partitions of eight GPUs take less than 16 KiB."""
_MAX_PARTITIONS, _MAX_GPUS = 64, 16
"""FM_MAX_FABRIC_PARTITIONS, FM_MAX_NUM_GPUS"""
_CODE = re.compile(r"fmReturn: (-?[0-9]{1,3})\b")
_VERSION = re.compile(r"version is\s*:\s*([0-9]{3}(?:\.[0-9]{1,4}){1,2})\b")


@dataclass(frozen=True)
class FabricConfig:
    """``socket``: of the fabric manager, where it listens on none of TCP's (FM_CMD_UNIX_SOCKET_PATH)."""

    fmpm: Path
    fabric_manager: Path
    socket: Path | None = None


def read_fabric_config(paths: Paths) -> FabricConfig:
    """Without the file: where NVIDIA's packages put things.

    :raises InvalidInput: ``fabric.config_invalid``
    """
    file, programs = paths.etc / FILE, paths.root / "usr/bin"
    programs_by_name = {"fmpm": str(programs / "fmpm"), "fabric_manager": str(programs / "nv-fabricmanager")}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        data = {}
    except (OSError, ValueError) as error:
        raise _invalid(file, str(error)) from error
    if not isinstance(data, dict) or not set(data) <= {*programs_by_name, "socket"}:
        raise _invalid(file, f"it may hold {', '.join(programs_by_name)} and socket")
    if not all(isinstance(value, str) and Path(value).is_absolute() for value in data.values()):
        raise _invalid(file, "each must be an absolute path")
    return FabricConfig(**{name: Path(path) for name, path in {**programs_by_name, **data}.items()})


def _invalid(file: Path, why: str) -> InvalidInput:
    return InvalidInput(
        "fabric.config_invalid", f"{file} cannot be used: {why}", hint="docs/howto/fabric-partitions.md"
    )


class Waits(Exception):
    """The fabric manager was started again and wants to be told first which partitions are active."""


class FabricManager(Protocol):
    """What is asked of it. Errors are :func:`_error_for`'s."""

    def there(self) -> bool:
        """Whether the host has one at all."""

    def version(self) -> str | None:
        """None: it cannot be told."""

    def partitions(self) -> tuple[ListedPartition, ...]:
        """As it has them now."""

    def activate(self, partition: int) -> None:
        """:raises Waits:"""

    def deactivate(self, partition: int) -> None:
        """:raises Waits:"""

    def set_activated(self, partitions: Sequence[int]) -> None:
        """What runs, after a restart."""


class Fmpm:
    """Starts the program for each question."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._known: tuple[tuple[str, int, int], str | None] | None = None

    def _config(self) -> FabricConfig:
        return read_fabric_config(self._paths)

    def there(self) -> bool:
        config = self._config()
        return config.fmpm.exists() or config.fabric_manager.exists()

    def version(self) -> str | None:
        """Asked again when the program is another one."""
        program = self._config().fabric_manager
        try:
            about = program.stat()
            key = (str(program), about.st_mtime_ns, about.st_ino)
            if self._known is None or self._known[0] != key:
                finished = run([str(program), "-v"], limit_s=_READ_SECONDS, most_bytes=_MAX_OUTPUT)
                match = _VERSION.search(finished.output)
                self._known = (key, None if match is None else match[1])
        except (OSError, ChildHangs, ChildTalksTooMuch):
            return None
        return self._known[1]

    def partitions(self) -> tuple[ListedPartition, ...]:
        finished = self._run(["-l"], _READ_SECONDS)
        try:
            return partitions_from(finished.output)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Fatal(
                "fabric.answer_invalid",
                "what fmpm says of the partitions makes no sense",
                hint="run 'fmpm -l' on the host: is it NVIDIA's, built for this fabric manager?",
                details=f"{error}: {finished.output[:300]!a}",
            ) from error

    def activate(self, partition: int) -> None:
        self._run(["-a", str(partition)], _CHANGE_SECONDS)

    def deactivate(self, partition: int) -> None:
        self._run(["-d", str(partition)], _CHANGE_SECONDS)

    def set_activated(self, partitions: Sequence[int]) -> None:
        self._run(
            ["--set-activated-list", ",".join(str(partition) for partition in sorted(set(partitions)))], _CHANGE_SECONDS
        )

    def _run(self, arguments: Sequence[str], limit_s: float) -> Finished:
        config = self._config()
        where = [] if config.socket is None else ["--unix-domain-socket", str(config.socket)]
        try:
            finished = run([str(config.fmpm), *where, *arguments], limit_s=limit_s, most_bytes=_MAX_OUTPUT)
        except ChildHangs as error:
            raise Unknown(
                "fabric.hung", "fmpm did not end in time", hint="is the fabric manager healthy?", details=str(error)
            ) from error
        except ChildTalksTooMuch as error:
            raise Unknown(
                "fabric.answer_invalid", "fmpm says too much to be believed", hint="is it NVIDIA's?", details=str(error)
            ) from error
        except OSError as error:
            raise Fatal(
                "fabric.no_tool",
                f"the host has no {config.fmpm}",
                hint="bring NVIDIA's fmpm (docs/howto/fabric-partitions.md)",
                details=str(error),
            ) from error
        if finished.code:
            raise _error_for(finished, arguments)
        return finished


def _error_for(finished: Finished, arguments: Sequence[str]) -> VgpuctlError | Waits:
    match = _CODE.search(finished.output)
    code = int(match[1]) if match is not None else finished.code - 256 if finished.code > 0 else 0
    details = f"fmpm {' '.join(arguments)}: exit code {finished.code}: {finished.output[:300].strip()}"
    match code:  # NOT_SUPPORTED -3, UNINITIALIZED -4, TIMEOUT -5, IN_USE -7, NOT_CONFIGURED -8, no connection -9
        case -8:
            return Waits(details)
        case -9 | -4:
            return Retryable(
                "fabric.down",
                "the host's fabric manager does not answer",
                hint="systemctl status nvidia-fabricmanager; its version must be the driver's",
                details=details,
            )
        case -3:
            return Fatal(
                "fabric.not_shared",
                "the host's fabric manager does not share the fabric",
                hint="set FABRIC_MODE=1 in its configuration and start it again",
                details=details,
            )
        case -7:
            return Conflict(
                "fabric.in_use",
                "a GPU of the partition is in one that is active",
                hint="'fmpm -l' on the host shows which; 'vgpuctl doctor' whose",
                details=details,
            )
        case -5:
            return Unknown("fabric.hung", "the fabric manager did not answer in time", details=details)
    return Fatal(
        "fabric.refused",
        "the fabric manager refused the partition",
        hint="read its log: journalctl -u nvidia-fabricmanager",
        details=details,
    )


def partitions_from(text: str) -> tuple[ListedPartition, ...]:
    """What ``fmpm -l`` printed.

    :raises ValueError: it makes no sense; so do KeyError and TypeError
    """
    rows = json.loads(text)["partitionInfo"]
    if not isinstance(rows, list) or len(rows) > _MAX_PARTITIONS:
        raise ValueError("no list of partitions")
    partitions = tuple(_partition(row) for row in rows)
    if len({partition.id for partition in partitions}) != len(partitions):
        raise ValueError("a partition stands there twice")
    busy = [member.physical for partition in partitions if partition.active for member in partition.members]
    if len(set(busy)) != len(busy):
        raise ValueError("partitions that overlap are active")
    return partitions


def _partition(row: dict[str, Any]) -> ListedPartition:
    members = tuple(_member(gpu) for gpu in row["gpuInfo"])
    numbers = {member.physical for member in members}
    if not members or len(members) > _MAX_GPUS or len(numbers) != len(members) or row["numGpus"] != len(members):
        raise ValueError("GPUs of a partition that cannot be so")
    return ListedPartition(
        id=_number(row["partitionId"], _MAX_PARTITIONS), members=members, active=bool(_number(row["isActive"], 2))
    )


def _member(gpu: dict[str, Any]) -> PartitionMember:
    uuid, address = gpu.get("uuid") or "", gpu.get("pciBusId") or ""
    if not isinstance(uuid, str) or not isinstance(address, str):
        raise TypeError("a UUID or PCI address that is no text")
    return PartitionMember(physical=_number(gpu["physicalId"], 1024), uuid=uuid, address=address_from(address))


def _number(value: object, below: int) -> int:
    """JSON of C's flags may hold true."""
    if not isinstance(value, int) or not 0 <= value < below:
        raise ValueError(f"{ascii(value)[:40]} where a number below {below} is expected")
    return int(value)
