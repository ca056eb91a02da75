# SPDX-License-Identifier: Apache-2.0
"""Writes into a package which version it is; packages/tree_version.py says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface):
    """Writes the version into the package, where the program reads it (orchestrator/client/version.py)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        file = Path(self.directory) / "build.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{self.metadata.version}\n", encoding="ascii")
        build_data["force_include"][str(file)] = "orchestrator/_data/build.txt"
