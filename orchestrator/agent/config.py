# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration, written at enrolment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import InvalidInput

_FIELDS = {"site": str, "epoch": int, "storage": str}


@dataclass(frozen=True)
class Config:
    """``site``: id of the control plane this host obeys. ``epoch``: the lowest fencing epoch it accepts."""

    site: str
    epoch: int
    storage: Path


def read_config(path: Path) -> Config:
    """:raises InvalidInput: ``agent.config_invalid``"""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _invalid(path, str(error)) from error
    if not isinstance(data, dict) or set(data) != set(_FIELDS):
        raise _invalid(path, f"it must hold exactly {', '.join(_FIELDS)}")
    for name, kind in _FIELDS.items():
        if type(data[name]) is not kind:
            raise _invalid(path, f"{name} must be of type {kind.__name__}")
    if not data["site"] or not Path(data["storage"]).is_absolute():
        raise _invalid(path, "site must not be empty and storage must be an absolute path")
    return Config(site=data["site"], epoch=data["epoch"], storage=Path(data["storage"]))


def _invalid(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        "agent.config_invalid", f"{path} cannot be used: {why}", hint="enrol the host again: 'vgpuctl host add --help'"
    )
