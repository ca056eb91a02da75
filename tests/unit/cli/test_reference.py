# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import Context

from orchestrator.cli.commands.apply import DIFFERENT
from orchestrator.cli.commands.doctor import DIFFERENCES_EXIT
from orchestrator.cli.examples import EXAMPLES, examples_of, page_of
from orchestrator.cli.main import run
from orchestrator.cli.tree import ENTRIES, SECTIONS, build, load
from orchestrator.core import errors
from tools.cli_reference import render

ROOT = Path(__file__).parents[3]
BROUGHT_BACK_BY_ANOTHER_COMMAND = {
    "volume detach", "network detach", "network unshare", "tenant remove-member", "profile remove", "context remove",
    "driver bundle remove", "security-group rule remove", "network address detach",
}  # fmt: skip
"""As docs/decisions/command-line.md has it."""


def test_the_reference_page_says_what_the_commands_say() -> None:
    written = (ROOT / "docs/reference/cli.md").read_text()
    assert written == render(), "run make docs"


def test_the_summary_of_every_command_is_its_own_first_sentence() -> None:
    wrong = {
        name: entry.summary
        for name, entry in ENTRIES.items()
        if not " ".join(str(load(name, entry).help).split()).startswith(entry.summary.rstrip("."))
    }
    assert wrong == {}


def test_the_page_names_every_exit_code_that_an_error_has() -> None:
    families = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    codes = {kind.exit_code for kind in families.values() if issubclass(kind, errors.VgpuctlError)}
    named = {int(code) for code in re.findall(r"^\| (\d+) \|", render(), re.MULTILINE)}
    assert codes | {0, DIFFERENT, DIFFERENCES_EXIT, 130} <= named


def test_every_summary_of_a_command_is_one_line_of_eighty_columns_and_is_nowhere_cut() -> None:
    assert re.findall(r"^  [a-z-]+  .*\.\.\.$", render(), re.MULTILINE) == []
    for path, group in _groups():
        for columns in (80, 60):
            told = _listed(path, group, columns)
            assert not [line for line in told if line.endswith("...")], f"{path} at {columns}"
            assert columns == 60 or [line for line in told if line.startswith("   ")] == [], path


def _groups() -> Iterator[tuple[str, Any]]:
    yield "vgpuctl", build()
    for name, entry in ENTRIES.items():
        command = load(name, entry)
        inner = {f"{name} {word}": one for word, one in getattr(command, "commands", {}).items()}
        yield from ((path, one) for path, one in {name: command, **inner}.items() if hasattr(one, "list_commands"))


def _listed(path: str, group: Any, columns: int) -> list[str]:
    """Lines of its lists of commands."""
    told = str(group.get_help(Context(group, info_name=path, terminal_width=columns)))
    titles = SECTIONS if path == "vgpuctl" else ("Commands",)
    lists = [told.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines() for title in titles]
    assert all(lists), path
    return [line for lines in lists for line in lines]


def test_every_option_and_argument_that_names_a_host_completes_to_hosts() -> None:
    asked = [(words, parameter) for words, command in _commands() for parameter in command.params]
    named = [(words, one) for words, one in asked if one.name in {"host", "on_host"}]
    assert len(named) > 5
    assert [words for words, one in named if one._custom_shell_complete is None] == []


def test_what_cannot_be_taken_back_is_asked_about_and_what_can_be_is_not() -> None:
    ending = {"delete", "remove", "remove-member", "revoke", "release", "detach", "unshare", "delete-vm"}
    asked = {words: any(one.name == "yes" for one in command.params) for words, command in _commands()}
    ends = {words: asks for words, asks in asked.items() if words.split()[-1] in ending}
    assert {words for words, asks in ends.items() if not asks} == BROUGHT_BACK_BY_ANOTHER_COMMAND
    assert len(ends) > len(BROUGHT_BACK_BY_ANOTHER_COMMAND) + 5


def _commands() -> Iterator[tuple[str, Any]]:
    for name, entry in ENTRIES.items():
        command = load(name, entry)
        yield from _with_those_below(name, command)


def _with_those_below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for word, child in getattr(command, "commands", {}).items():
        yield from _with_those_below(f"{words} {word}", child)


def test_short_verbs_and_the_vm_group_are_the_same_functions() -> None:
    group = load("vm", ENTRIES["vm"])
    for verb in ("create", "delete", "show", "start", "stop"):
        assert group.commands[verb].callback.__wrapped__ is load("x", ENTRIES[f"{verb}-vm"]).callback.__wrapped__


def test_every_help_ends_with_examples_that_are_read_as_they_stand() -> None:
    seen = set()
    for words, command in _commands():
        assert f"More: {page_of(words)}" in str(command.epilog), words
        assert page_of(words) != "docs/README.md", f"{words} has no page in cli/examples.py"
        assert (ROOT / page_of(words)).is_file(), words
        if not hasattr(command, "commands"):
            found = examples_of(words)
            assert found, f"{words} has no example in cli/examples.py"
            seen.add(words)
            for example in found:
                _read(words, command, example)
    assert set(EXAMPLES) <= seen


def _read(words: str, command: Any, example: str) -> None:
    """With the real parser, down to types and checks, and nothing is done."""
    given = shlex.split(example)[len(words.split()) if examples_of(words) is EXAMPLES.get(words) else 1 :]
    command.make_context(words, given, resilient_parsing=False, obj=None)


def test_every_command_is_in_one_section_of_the_help() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(ENTRIES)


@pytest.mark.parametrize("words", ["host add", "vm create", "maintenance show", "create-vm"])
def test_help_and_a_command_is_the_help_of_that_command(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", *words.split()]) == 0
    told = capsys.readouterr().out
    assert run([*words.split(), "--help"]) == 0
    assert capsys.readouterr().out == told
    assert told.startswith(f"Usage: vgpuctl {words}")


def test_help_alone_is_the_whole_help_and_of_nothing_a_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    told = capsys.readouterr().out
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == told
    assert run(["help", "frobnicate"]) == 2


def test_what_can_be_completed_is() -> None:
    names = {"tenant", "sort", "gpu", "provision", "limits", "values"}
    asked = [(words, one) for words, command in _commands() for one in command.params if one.name in names]
    assert {one.name for _, one in asked} == names
    assert [words for words, one in asked if one._custom_shell_complete is None] == []


def test_sort_completes_to_the_columns_of_the_list() -> None:
    command = load("list-vms", ENTRIES["list-vms"])
    (sort,) = (one for one in command.params if one.name == "sort")
    told = [item.value for item in sort.shell_complete(Context(command), "-a")]
    assert told == ["-address", "-age"]
    quota = dict(_commands())["quota set"]
    (limits,) = (one for one in quota.params if one.name == "limits")
    assert [item.value for item in limits.shell_complete(Context(quota), "mem")] == ["memory="]
