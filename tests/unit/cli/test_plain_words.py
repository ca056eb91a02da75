# SPDX-License-Identifier: Apache-2.0
"""Nobody reads the words of the libraries that check what is typed: bad values for every option and every field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from orchestrator.catalogue.manifest_file import read_manifest
from orchestrator.catalogue.manifest_forms import ManifestForm
from orchestrator.cli.failure import usage_error
from orchestrator.cli.tree import ENTRIES, load, unknown_command
from orchestrator.cli.words import COMMANDS, NOT_BUILT, NOUNS, OPTIONS, instead_of
from orchestrator.core.errors import InvalidInput, VgpuctlError
from orchestrator.core.names import closest, near
from tests.fakes.typed import Cli

THEIRS = re.compile(
    r"(?i)not a valid|int range|invalid value|no such option|unexpected extra|requires an argument|missing (option|arg)"
    r"|input should|extra inputs|permitted|field required|instance of|valid (string|dictionary|integer)|[a-z]+Form\b"
)


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(f"{words} {name}", child)


COMMANDS_BY_WORDS = dict(one for name, entry in ENTRIES.items() for one in _commands(name, load(name, entry)))


def _bad(command: Any) -> Iterator[list[str]]:
    yield ["--colour", "blue"]
    yield ["surplus"] * 3
    yield []
    for param in command.params:
        if param.param_type_name == "option" and not param.is_flag:
            name = max(param.opts, key=len)
            yield [name]
            yield from ([f"{name}={value}"] for value in ("", "nonsense", "-1", "1.5", "99999999999999999999", "/"))


def _refusal(words: str, given: list[str]) -> VgpuctlError | None:
    try:
        COMMANDS_BY_WORDS[words].make_context(f"vgpuctl {words}", list(given), obj=None)
    except typer.TyperException as error:
        return usage_error(error)
    except VgpuctlError as refused:
        return refused
    except typer.Exit:
        pass
    return None


@pytest.mark.parametrize("words", sorted(COMMANDS_BY_WORDS))
def test_a_bad_value_of_an_option_is_told_in_our_words(words: str) -> None:
    for given in _bad(COMMANDS_BY_WORDS[words]):
        told = _refusal(words, given)
        if told is not None:
            assert not THEIRS.search(told.message), (given, told.message)
            assert "\n" not in told.message, given
            assert told.hint, given


@pytest.mark.parametrize("value", ["", "[1]", "{a: b}", "text", "3.5", "true", "99999999999999999999", "- {name: 3}"])
@pytest.mark.parametrize("section", sorted(ManifestForm.model_fields))
def test_a_bad_value_of_a_file_is_told_in_our_words(section: str, value: str) -> None:
    entries = ManifestForm.model_fields[section].annotation
    parts = [one for one in getattr(entries, "__args__", ()) if hasattr(one, "model_fields")]
    texts = [f"{section}:\n  {value}\n", value]
    texts += [f"{section}:\n- {name}: {value}\n" for part in parts for name in [*part.model_fields, "colour"]]
    for text in texts:
        try:
            read_manifest(Path("site.yaml"), text)
        except InvalidInput as refused:
            told = [refused.message, *(reason.message for reason in refused.reasons)]
            assert [one for one in told if THEIRS.search(one)] == [], text


def test_every_section_of_a_file_was_tried_field_by_field() -> None:
    forms = [ManifestForm.model_fields[one].annotation for one in ("vms", "tenants", "offerings", "networks")]
    assert all(any(hasattr(part, "model_fields") for part in getattr(one, "__args__", ())) for one in forms)


def test_an_empty_file_says_so_in_one_line() -> None:
    with pytest.raises(InvalidInput) as refused:
        read_manifest(Path("site.yaml"), "")
    assert refused.value.message.startswith("site.yaml:1: the file: is no list of KEY: VALUE")


@pytest.mark.parametrize("word", sorted(NOT_BUILT))
def test_what_is_not_built_is_said_so_and_what_is_done_instead(word: str) -> None:
    assert word not in ENTRIES
    for known in (ENTRIES, ("list", "show", "clean", "stop")):
        hint = str(unknown_command(word, known, "vgpuctl").hint)
        assert hint.startswith("not built: ")
        assert "vgpuctl " in hint


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("resize-vm", "did you mean vm resize?"),
        ("vm scale", "did you mean resize?"),
        ("drain-host", "did you mean host drain?"),
        ("drain-nodes", "did you mean host drain?"),
        ("drain", "did you mean host drain?"),
        ("migrate-vm", "did you mean vm move?"),
        ("move-vm", "did you mean vm move?"),
        ("vm migrate", "did you mean move?"),
        ("live-migrate-vm", "did you mean vm move?"),
        ("snapshot-vm", "did you mean vm snapshot?"),
        ("backup-vm", "did you mean backup?"),
        ("snapshot", "did you mean vm snapshot?"),
        ("vm snapshots", "did you mean snapshot?"),
        ("volume snap", "did you mean snapshot?"),
        ("resize-disk", "did you mean vm resize-disk?"),
        ("vm disk-resize", "did you mean resize-disk?"),
        ("backup create", "did you mean run?"),
        ("vm clone", "--from-snapshot VM/SNAPSHOT"),
        ("clone-vm", "'vgpuctl export'"),
        ("vm clone", "'vgpuctl export'"),
        ("volume grow", "did you mean resize?"),
        ("resize-volume", "did you mean volume resize?"),
        ("usage", "'vgpuctl gpu map'"),
        ("usage-vm", "'vgpuctl gpu map'"),
        ("host usage", "'vgpuctl gpu map'"),
        ("cost", "'vgpuctl quota list'"),
        ("tenant cost", "'vgpuctl quota list'"),
        ("wait", "did you mean operation wait?"),
        ("wait-vm", "did you mean operation wait?"),
        ("vm wait", "did you mean operation wait?"),
        ("wait-host", "did you mean operation wait?"),
        ("pause-vm", "'vgpuctl vm suspend NAME'"),
        ("reboot-vm", "did you mean restart-vm?"),
        ("vm reboot", "did you mean restart?"),
        ("get-vms", "did you mean list-vms?"),
        ("get-vm", "did you mean show-vm?"),
        ("pool-list", "did you mean pool list?"),
        ("vm-start", "did you mean start-vm?"),
        ("host-reboot", "did you mean host reboot?"),
        ("snapshot-create", "did you mean vm snapshot create?"),
        ("backup prune", "did you mean delete?"),
        ("health clear", "did you mean return?"),
        ("list-vm", "did you mean list-vms?"),
        ("label-vm", "did you mean vm set?"),
        ("logs-vm", "did you mean console?"),
        ("list-hosts", "did you mean host list?"),
        ("cordon-host", "did you mean host cordon?"),
        ("cordon", "did you mean host cordon?"),
        ("host maintenance", "did you mean cordon?"),
        ("attach-volume", "did you mean volume attach?"),
        ("create-image", "did you mean image create?"),
        ("upload-image", "did you mean image add?"),
        ("image delete", "did you mean remove?"),
        ("wait-operation", "did you mean operation wait?"),
        ("list", "did you mean list-vms?"),
        ("suspend", "did you mean vm suspend?"),
        ("resume-vm", "did you mean vm resume?"),
        ("vm restore", "did you mean backup restore?"),
        ("rebalance", "did you mean gpu defragment?"),
        ("floating-ip", "did you mean network address?"),
        ("stpo-vm", "did you mean stop-vm"),
    ],
)
def test_a_verb_and_a_noun_are_understood_in_either_order(typed: str, told: str) -> None:
    *group, word = typed.split()
    known = load(group[0], ENTRIES[group[0]]).commands if group else ENTRIES
    assert told in str(unknown_command(word, known, " ".join(["vgpuctl", *group])).hint)


def test_words_of_other_tools_name_commands_and_options_that_there_are() -> None:
    assert set(COMMANDS.values()) <= set(COMMANDS_BY_WORDS)
    assert not set(COMMANDS) & {*NOT_BUILT, *ENTRIES}
    assert set(NOUNS) <= set(ENTRIES)
    known = {name for command in COMMANDS_BY_WORDS.values() for param in command.params for name in param.opts}
    assert {option for options in OPTIONS.values() for option in options} <= known
    assert instead_of("flavor", tuple(ENTRIES)) == "did you mean profile?"
    assert instead_of("wait", tuple(ENTRIES)) == "did you mean operation wait?"
    assert instead_of("frobnicate", tuple(ENTRIES)) is None


def test_what_looks_alike_is_meant_first() -> None:
    names = ["w20", "w10", "w09", "w01"]
    assert closest("w0l", names)[0] == "w01"
    assert near("w0l", names, "vgpuctl list-vms").startswith("did you mean w01")
    assert closest("web1", ["web", "web/w-1", "web/web1"])[0] == "web/web1"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("quota get", "did you mean show?"),
        ("quota edit", "did you mean set?"),
        ("token delete", "did you mean revoke?"),
        ("mig list", "did you mean show?"),
        ("host maintenance", "did you mean cordon?"),
        ("host rename", "run 'vgpuctl host --help'"),
        ("server start", "run 'vgpuctl server --help'"),
        ("vm reboot", "did you mean restart?"),
        ("volume extend", "did you mean resize?"),
        ("resize", "did you mean vm resize?"),
        ("upgrade", "did you mean driver upgrade?"),
        ("auth", "did you mean login?"),
        ("user", "did you mean tenant members?"),
        ("config", "did you mean context?"),
        ("port-forward", "did you mean vm proxy?"),
        ("tenants", "did you mean tenant?"),
        ("reboot t4-1", "did you mean restart-vm, or host reboot?"),
        ("gpu reset t4-0 41:00.0", "did you mean health reset?"),
        ("vm reset x", "did you mean restart?"),
        ("get vms", "did you mean list-vms?"),
        ("get vm train", "did you mean show-vm?"),
        ("get pools", "did you mean pool list?"),
        ("list hosts", "did you mean host list?"),
        ("ls hosts", "did you mean host list?"),
        ("describe vm train", "did you mean show-vm?"),
        ("describe host t4-0", "did you mean host show?"),
        ("rm volume data", "did you mean volume delete?"),
        ("create image demo", "did you mean image create?"),
        ("delete -f a.yaml", "not built: 'vgpuctl apply -f FILE --prune'"),
        ("undefine train", "did you mean delete-vm?"),
        ("domain list", "did you mean vm?"),
        ("server create x", "did you mean create-vm?"),
        ("cordn", "run 'vgpuctl --help'"),
        ("host cordn", "did you mean cordon"),
        ("crate-vm", "did you mean create-vm?"),
        ("extend-vm x --by", "did you mean --lease?"),
        ("audit list --actor", "did you mean --who?"),
        ("create-vm x --isolation", "run 'vgpuctl create-vm --help'"),
        ("create-vm x --boot", "did you mean --boot-policy?"),
        ("create-vm x --lable", "did you mean --label?"),
        ("vm set x --priority", "run 'vgpuctl vm set --help'"),
        ("apply --dry-run", "'vgpuctl plan -f FILE' shows what apply would do"),
        ("image add demo --from-snapshot", "'vgpuctl image create NAME --from-snapshot VM/SNAPSHOT'"),
        ("explain -p t4-2q --count", "'vgpuctl capacity -p PROFILE' says how many VMs fit; --devices asks"),
        ("capacity t4-2q", "run 'vgpuctl capacity --help'; for example 'vgpuctl capacity --profile"),
        ("explain t4-2q", "run 'vgpuctl explain --help'; for example 'vgpuctl explain --profile"),
        ("plan site.yaml", "run 'vgpuctl plan --help'; for example 'vgpuctl plan -f site.yaml'"),
        ("driver upgrade gpu-1", "run 'vgpuctl driver upgrade --help'; for example 'vgpuctl driver upgrade --"),
        ("list-vms --context", "'vgpuctl context use NAME' makes it the current one"),
    ],
)
def test_what_is_said_instead_is_what_was_meant_or_the_help(cli: Cli, words: str, hint: str) -> None:
    refused = cli(*words.split())
    assert (refused.code, refused.out) == (2, "")
    assert f"hint: {hint}" in refused.err
    assert refused.err.count("did you mean") <= 1
