# SPDX-License-Identifier: Apache-2.0
"""Trees of other versions of the program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_BESIDE: Final = ("tests", "vgpu_profiles", "playbooks")


def copied_tree(tree: Path) -> Path:
    """The program as it is here, of another build: what is changed in it changes nothing here."""
    shutil.copytree(ROOT / "orchestrator", tree / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _BESIDE:
        (tree / name).symlink_to(ROOT / name)
    return tree


def tree_with_another_agent(tree: Path) -> Path:
    """A copy whose agent is of another build, with nothing that it does otherwise."""
    with (copied_tree(tree) / "orchestrator/agent/version.py").open("a", encoding="utf-8") as file:
        file.write("\n# As it was in the version before.\n")
    return tree


def built_agent(package: Path, tree: Path) -> str:
    """The file that a tree's server puts on hosts; the version that it tells."""
    building = "import sys; from pathlib import Path; from orchestrator.agent.build_zipapp import build_agent\n"
    building += "print(build_agent(Path(sys.argv[1])).version)"
    command = [sys.executable, "-c", building, str(package)]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.strip()
