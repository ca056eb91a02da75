# SPDX-License-Identifier: Apache-2.0
"""Where the operator's fabric manager is: a file of the host's own, which enrolment neither writes nor removes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agent.paths import Paths
from orchestrator.core.errors import InvalidInput

FILE = "vgpuctl-agent/fabric.json"
"""Below /etc."""


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
    found = {"fmpm": str(programs / "fmpm"), "fabric_manager": str(programs / "nv-fabricmanager")}
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        data = {}
    except (OSError, ValueError) as error:
        raise _invalid(file, str(error)) from error
    if not isinstance(data, dict) or not set(data) <= {*found, "socket"}:
        raise _invalid(file, f"it may hold {', '.join(found)} and socket")
    if not all(isinstance(value, str) and Path(value).is_absolute() for value in data.values()):
        raise _invalid(file, "each must be an absolute path")
    return FabricConfig(**{name: Path(path) for name, path in {**found, **data}.items()})


def _invalid(file: Path, why: str) -> InvalidInput:
    return InvalidInput(
        "fabric.config_invalid", f"{file} cannot be used: {why}", hint="docs/howto/fabric-partitions.md"
    )
