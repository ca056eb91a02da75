# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.catalogue.manifest_file import read_manifest
from orchestrator.catalogue.profiles import shipped_profiles
from tools.error_reference import CODE, PAGE, codes
from tools.tree import ROOT, files, text

LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
LISTED_PATH = re.compile(
    r"`((?:orchestrator|playbooks|vgpu_profiles|lab|docs|tests|inventory|core|cli|agent)/[\w/.-]*)`"
)
_INSTALLS = re.compile(r"\b(?:pip|pipx|uv pip|uv tool|uvx)(?: install)? +['\"]?vgpuctl\b(?!-)")
OURS = [
    Path("README.md"), Path("ARCHITECTURE.md"), Path("CONTRIBUTING.md"), Path("playbooks/README.md"),
    Path("docs/explanation/add-a-host-action.md"), Path("docs/explanation/add-an-attachment-kind.md"),
]  # fmt: skip


def test_every_error_code_is_in_the_reference_and_no_other() -> None:
    written = {
        code for code in re.findall(r"^\| `([^`]+)`", text(PAGE), re.MULTILINE) if CODE.fullmatch(code) is not None
    }
    assert (codes() - written, written - codes()) == (set(), set()), "run make docs"


@pytest.mark.parametrize("page", files(".md"), ids=str)
def test_no_link_leads_nowhere(page: Path) -> None:
    targets = [target for target in LINK.findall(text(page)) if not (ROOT / page.parent / target).exists()]
    assert targets == []


@pytest.mark.parametrize("page", files(".md"), ids=str)
def test_every_profile_in_an_example_exists(page: Path) -> None:
    added = set(re.findall(r"- name: (\S+)\n(?: +description: .*\n)? +kind:", text(page)))
    for name in re.findall(r"vgpuctl .*(?:--profile|-p) (?:\"([^\"]+)\"|([a-z0-9.:+-]+))", text(page)):
        if "".join(name) not in added:
            shipped_profiles().resolve("".join(name))


@pytest.mark.parametrize("page", files(".md", under="docs/howto"), ids=str)
def test_every_file_for_apply_that_is_shown_can_be_read(page: Path) -> None:
    for example in re.findall(r"```yaml\n(schema_version: 1\nlabel:.*?)```", text(page), re.DOTALL):
        assert {one.profile for one in read_manifest(page, example).vms} != set()


def test_nobody_is_told_to_install_a_package_from_a_registry() -> None:
    """None there is ours: whoever takes the name has the machines of those who follow such a line."""
    told = [path for path in (*files(".md"), *files(".py", under="orchestrator")) if _INSTALLS.search(text(path))]
    assert told == []


def test_every_page_for_users_is_in_the_index_once() -> None:
    pages = {page.relative_to("docs").as_posix() for page in files(".md") if page.parts[0] == "docs"}
    index = Counter(LINK.findall(text(Path("docs/README.md"))))
    assert {page for page in pages if not page.startswith(("decisions/", "README"))} - set(index) == set()
    assert [page for page, count in index.items() if count > 1] == []


@pytest.mark.parametrize("page", OURS, ids=str)
def test_every_path_that_is_named_is_there(page: Path) -> None:
    roots = (ROOT, ROOT / "orchestrator")
    missing = [path for path in LISTED_PATH.findall(text(page)) if not any((root / path).exists() for root in roots)]
    assert missing == []


def test_every_target_that_the_documentation_names_is_in_a_makefile() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text(Path("Makefile")) + text(Path("lab/lab.mk")), re.MULTILINE))
    named = {target for page in files(".md") for target in re.findall(r"`make ([a-z][a-z-]*)", text(page))}
    assert named - targets == set()
