# SPDX-License-Identifier: Apache-2.0
"""Writes the generated parts of the client, and into a package which version it is (packages/tree_version.py)."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface):
    """tools/client_code.py writes into the tree; the version is put where orchestrator/client/version.py reads it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        generator = runpy.run_path(str(root / "tools/client_code.py"))
        generator["write_client"](root)
        if version == "editable":
            return
        build_data["artifacts"].append(f"{generator['GENERATED']}/")
        file = Path(self.directory) / "build.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{self.metadata.version}\n", encoding="ascii")
        build_data["force_include"][str(file)] = "orchestrator/_data/build.txt"
