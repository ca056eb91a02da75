# SPDX-License-Identifier: Apache-2.0
"""Where the lab keeps things: what can be built again (cache) and what belongs to running hosts (state)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Places:
    project: Path
    state: Path
    cache: Path

    @property
    def key(self) -> Path:
        """Private key of the lab's root login; made on this machine, never in the image."""
        return self.state / "key"


def places(environment: Mapping[str, str] | None = None) -> Places:
    """``LAB_STATE`` and ``LAB_CACHE`` win over ``build/lab`` and the user's cache directory."""
    env = os.environ if environment is None else environment
    user_cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    state = Path(env.get("LAB_STATE") or PROJECT / "build" / "lab").absolute()
    cache = Path(env.get("LAB_CACHE") or user_cache / "vgpuctl-lab").absolute()
    return Places(project=PROJECT, state=state, cache=cache)
