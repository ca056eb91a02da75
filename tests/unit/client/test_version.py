# SPDX-License-Identifier: Apache-2.0
"""Two builds never look the same, and a tree that knows nothing of its past says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.client.version import RELEASE, VERSION, build_of, commit_of

COMMIT = "286a810a" * 5


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "tree" / "orchestrator"
    package.mkdir(parents=True)
    (package / "one.py").write_text("ONE = 1\n")
    return package


def git(tree: Path, *words: str) -> str:
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_CONFIG_GLOBAL": os.devnull}
    identity |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com", "PATH": os.environ["PATH"]}
    done = subprocess.run(["git", "-C", tree, *words], env=identity, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_tree_without_git_says_so(package: Path) -> None:
    assert build_of(package).startswith(f"{RELEASE}+nogit.s")


def test_an_edited_file_makes_another_build(package: Path) -> None:
    before = build_of(package)
    assert build_of(package) == before
    (package / "one.py").write_text("ONE = 2\n")
    os.utime(package / "one.py", ns=(0, 1))
    assert build_of(package) != before


def test_a_package_is_what_was_written_into_it(package: Path) -> None:
    (package / "_data").mkdir()
    (package / "_data" / "build.txt").write_text("1.2.3\n")
    assert build_of(package) == "1.2.3"


def test_the_commit_is_found_without_git_in_trees_linked_trees_and_packed_ones(package: Path) -> None:
    tree, linked = package.parent, package.parent.parent / "linked"
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "first")
    commit = git(tree, "rev-parse", "HEAD")
    assert commit_of(tree) == commit
    assert build_of(package).startswith(f"{RELEASE}+g{commit[:8]}.s")
    git(tree, "worktree", "add", "-q", "-b", "other", str(linked))
    git(tree, "pack-refs", "--all")
    assert (commit_of(tree), commit_of(linked)) == (commit, commit)
    git(tree, "checkout", "-q", "--detach")
    assert commit_of(tree) == commit


@pytest.mark.parametrize("content", ["ref: refs/heads/none\n", "nonsense\n", "", "\xff"])
def test_a_damaged_repository_is_none(package: Path, content: str) -> None:
    (package.parent / ".git").mkdir()
    (package.parent / ".git" / "HEAD").write_text(content, encoding="latin-1")
    assert commit_of(package.parent) is None
    assert build_of(package).startswith(f"{RELEASE}+nogit.s")


def test_this_tree_is_of_the_release_that_the_code_names() -> None:
    assert VERSION.startswith(RELEASE)
