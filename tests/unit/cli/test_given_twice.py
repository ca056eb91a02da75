# SPDX-License-Identifier: Apache-2.0
"""An option that takes one value is given once: of two the parser would take the last, and say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import Context

from orchestrator.cli.tree import ENTRIES, load
from tests.fakes.typed import Cli


def _leaves(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _leaves(f"{words} {name}", inner)


def _options() -> Iterator[tuple[str, list[str], bool]]:
    for name, entry in ENTRIES.items():
        for words, command in _leaves(name, load(name, entry)):
            for option in command.get_params(Context(command)):
                if option.param_type_name == "option" and option.name != "help":
                    given = [max(option.opts, key=len), *([] if option.is_flag else ["value"])]
                    yield words, given, option.multiple


OPTIONS = list(_options())


@pytest.mark.parametrize(("words", "given"), [(words, given) for words, given, multiple in OPTIONS if not multiple])
def test_an_option_of_one_value_is_taken_once(cli: Cli, words: str, given: list[str]) -> None:
    told = cli(*words.split(), *given, *given)
    assert (told.code, told.out) == (2, "")
    assert f"{given[0]} is given more than once" in told.err


def test_both_ways_to_write_an_option_are_the_same_option(cli: Cli) -> None:
    assert "--profile is given more than once" in cli("create-vm", "x", "-p", "a", "--profile=b").err


@pytest.mark.parametrize("words", ["start-vm x --wait --no-wait", "backup policy set nightly --resume --pause"])
def test_two_that_say_the_opposite_exclude_each_other(cli: Cli, words: str) -> None:
    refused = cli(*words.split())
    assert (refused.code, refused.out) == (2, "")
    assert "exclude each other [cli.usage]\nhint: give one of them" in refused.err


def test_lists_may_be_repeated() -> None:
    assert {("apply", "--file"), ("create-vm", "--label")} <= {
        (words, given[0]) for words, given, multiple in OPTIONS if multiple
    }


NETWORK = "schema_version: 1\nnetworks:\n  - name: {name}\n    subnet: 10.88.{number}.0/24\n"
VM = "schema_version: 1\nvms:\n  - name: several\n    profile: t4-small\n    image: guest\n    network: first\n"


def test_several_files_and_directories_are_one_plan(cli: Cli, tmp_path: Path) -> None:
    inside = tmp_path / "site"
    inside.mkdir()
    (inside / "a.yaml").write_text(NETWORK.format(name="first", number=41))
    (inside / "b.yml").write_text(NETWORK.format(name="second", number=42))
    (inside / "notes.txt").write_text("no file of ours")
    vm = tmp_path / "vm.yaml"
    vm.write_text(VM)
    both = cli("plan", "-f", str(vm), "-f", str(inside), "-o", "name")
    assert both.code == 3, both.err
    assert "3 to add" in cli("plan", "-f", str(inside), "-f", str(vm)).out
    assert cli("plan", "-f", str(vm)).code == 4
    bad = tmp_path / "bad.yaml"
    bad.write_text("vms: 1\n")
    for words in (["-f", str(bad), "-f", str(inside)], ["-f", str(inside), "-f", str(bad)]):
        refused = cli("plan", *words)
        assert (refused.code, refused.out) == (2, "")
        assert "bad.yaml" in refused.err


@pytest.mark.parametrize("verb", ["plan", "diff", "apply"])
def test_what_two_files_have_both_is_refused_by_the_name_of_the_second(cli: Cli, tmp_path: Path, verb: str) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(NETWORK.format(name="same", number=43))
    told = cli(verb, "-f", str(tmp_path))
    assert (told.code, told.out) == (2, "")
    assert "b.yaml:3: networks: same is given twice" in told.err
    again = cli(verb, "-f", str(tmp_path / "a.yaml"), "-f", str(tmp_path / "a.yaml"))
    assert (again.code, "a.yaml is given more than once" in again.err) == (2, True)


def test_files_of_two_labels_are_two_sites(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("label: one\n" + NETWORK.format(name="first", number=41))
    (tmp_path / "b.yaml").write_text(NETWORK.format(name="second", number=42))
    told = cli("apply", "-f", str(tmp_path), "--prune")
    assert (told.code, told.out) == (2, "")
    assert "[manifest.labels]" in told.err


def test_a_directory_without_such_a_file_is_named(cli: Cli, tmp_path: Path) -> None:
    told = cli("apply", "-f", str(tmp_path))
    assert (told.code, told.out) == (2, "")
    assert "has no file that ends in .yaml or .yml [file.unreadable]" in told.err
