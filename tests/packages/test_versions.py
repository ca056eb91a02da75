# SPDX-License-Identifier: Apache-2.0
"""Versions grow, as pip and as dpkg sort them, whether anybody ever tagged anything or not."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.version import Version

from packages.tree_version import debian_version, tree_version
from tools.tree import ROOT


class Tree:
    """A repository with a file of ours, and commits at times of its own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "orchestrator/client").mkdir(parents=True)
        shutil.copy(ROOT / "orchestrator/client/version.py", place / "orchestrator/client/version.py")
        self._git("init", "-q")
        self._git("add", ".")

    def commit(self, at: int) -> str:
        """Its version then."""
        self._git("commit", "-q", "--allow-empty", "-m", "one more", at=at)
        return tree_version(self.place)

    def tag(self, name: str) -> str:
        self._git("tag", name)
        return tree_version(self.place)

    def _git(self, *words: str, at: int = 0) -> None:
        when = f"@{at} +0200"
        own = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when, "GIT_CONFIG_GLOBAL": "/dev/null"}
        who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.test"]
        subprocess.run(["git", *who, *words], cwd=self.place, env=os.environ | own, check=True)


@pytest.fixture
def versions(tmp_path: Path) -> list[str]:
    """In the order in which packages are built."""
    tree = Tree(tmp_path)
    early = [tree.commit(1795400000), tree.commit(1795400001), tree.commit(1795486400)]
    return [*early, tree.tag("v0.1.0"), tree.commit(1795500000), tree.commit(1795500001), tree.tag("v0.2.0")]


def test_pip_takes_every_later_build_for_a_newer_one(versions: list[str]) -> None:
    parsed = [Version(version) for version in versions]
    assert all(before < after for before, after in pairwise(parsed)), versions
    assert versions[0].startswith("0.1.0.dev20261123")
    assert [versions[3], versions[6]] == ["0.1.0", "0.2.0"]


def test_dpkg_takes_every_later_build_for_a_newer_one(versions: list[str]) -> None:
    for before, after in pairwise(map(debian_version, versions)):
        subprocess.run(["dpkg", "--compare-versions", before, "lt", after], check=True)


def test_a_build_without_git_is_older_than_the_release(tmp_path: Path, versions: list[str]) -> None:
    shutil.copytree(tmp_path, tmp_path / "unpacked", ignore=shutil.ignore_patterns(".git", "unpacked"))
    unpacked = tree_version(tmp_path / "unpacked")
    assert unpacked.startswith("0.1.0.dev0+nogit.d")
    assert Version(unpacked) < Version(versions[0]) < Version("0.1.0")
