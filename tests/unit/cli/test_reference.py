# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

from orchestrator.cli.reference import render
from orchestrator.cli.tree import ENTRIES, load
from orchestrator.client.version import VERSION

ROOT = Path(__file__).parents[3]


def test_the_reference_page_says_what_the_commands_say() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text()
    assert written == render(), "run python -m orchestrator.cli.reference > docs/reference/cli.md"


def test_the_summary_of_every_command_is_its_own_first_sentence() -> None:
    wrong = {
        name: entry.summary
        for name, entry in ENTRIES.items()
        if not " ".join(str(load(name, entry).help).split()).startswith(entry.summary.rstrip("."))
    }
    assert wrong == {}


def test_short_verbs_and_the_vm_group_are_the_same_functions() -> None:
    group = load("vm", ENTRIES["vm"])
    for verb in ("create", "delete", "show", "start", "stop"):
        assert group.commands[verb].callback.__wrapped__ is load("x", ENTRIES[f"{verb}-vm"]).callback.__wrapped__


def test_the_version_is_that_of_the_package() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()
