# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tools.tree import ROOT, files, project_files, text

PAGE = Path("docs/explanation/where.md")
ROWS = re.findall(r"^\| .+ \| `([^`]+)` \| `([^`]+)` \|$", text(PAGE), re.MULTILINE)
PACKAGES = sorted(path for path in (ROOT / "orchestrator").iterdir() if (path / "__init__.py").exists())
ALL_PACKAGES = [ROOT / path.parent for path in files(".py", under="orchestrator/") if path.name == "__init__.py"]
LARGE = 400
"""Lines with something on them in the files of one package, from which on it has a row."""


@pytest.mark.parametrize(("file", "name"), ROWS)
def test_what_a_maintainer_looks_for_is_where_the_page_says(file: str, name: str) -> None:
    assert (ROOT / file).is_file()
    assert re.search(rf"^ *(?:class |(?:async )?def )?{re.escape(name)}\b", text(Path(file)), re.MULTILINE) is not None


def test_what_the_page_names_is_used() -> None:
    """What nobody calls decides nothing: a name stands once where it is defined and at least once elsewhere."""
    words = Counter(word for path in files(".py", under="orchestrator/") for word in re.findall(r"\w+", text(path)))
    of_routes = ("orchestrator/api/routes/", "orchestrator/cli/commands/")
    called = {name for file, name in ROWS if file.endswith(".py") and not file.startswith(of_routes)}
    assert {name for name in called if words[name] < 2} == set()


def test_a_large_package_has_a_row() -> None:
    """A package is a directory with an ``__init__.py``; what lies in a package within it is that one's."""
    with_row = {Path(file).parent for file, _ in ROWS}
    large = {
        package.relative_to(ROOT)
        for package in ALL_PACKAGES
        if sum(1 for file in package.glob("*.py") for line in file.read_text().splitlines() if line.strip()) > LARGE
    }
    assert large - with_row == set()


def test_the_page_is_one_step_from_the_readme() -> None:
    assert f"({PAGE})" in text(Path("README.md"))


def test_a_page_says_what_is_in_every_directory() -> None:
    listed = re.findall(r"`([a-z_]+)/", "".join(re.findall(r"^\| .* \|$", text(Path("CONTRIBUTING.md")), re.MULTILINE)))
    kept = {path.parts[0] for path in project_files() if len(path.parts) > 1 and not path.parts[0].startswith(".")}
    assert kept - {*listed, "docs"} == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_each_package_has_a_page_whose_files_are_there(package: Path) -> None:
    page = text(package.relative_to(ROOT) / "README.md")
    listed = [name for line in re.findall(r"^- (`.*?):", page, re.MULTILINE) for name in re.findall(r"`([^`]+)`", line)]
    assert listed != []
    assert [name for name in listed if not (package / name).exists()] == []
