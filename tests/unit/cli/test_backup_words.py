# SPDX-License-Identifier: Apache-2.0
"""What commands about disks and backups take and say: in one line, and what is shown is accepted."""

from __future__ import annotations

import pytest
from typer import TyperException

from orchestrator.cli.commands.backup_policy import _values
from orchestrator.cli.failure import usage_error
from orchestrator.cli.tree import ENTRIES, load
from orchestrator.core.errors import InvalidInput
from orchestrator.core.units import times


@pytest.mark.parametrize("window", ["any", "none"])
@pytest.mark.parametrize("verify", ["never", "none"])
def test_what_a_policy_shows_of_hours_and_verification_is_accepted(window: str, verify: str) -> None:
    assert _values(None, None, window, verify, None) == {"window": None, "verify_every_s": None}


@pytest.mark.parametrize(("every", "verify"), [("30m", None), (None, "59m")])
def test_a_period_that_is_too_short_says_what_is_accepted(every: str | None, verify: str | None) -> None:
    with pytest.raises(InvalidInput) as refused:
        _values(None, every, None, verify, None)
    assert (refused.value.code.partition(".")[2], refused.value.hint) == ("out_of_range", "1h to 366d, for example 1d")


def said(*words: str) -> InvalidInput:
    """Of what the command line refuses."""
    first, *rest = words
    command = load(first, ENTRIES[first])
    path = ["vgpuctl", first]
    while hasattr(command, "commands") and rest:
        path.append(rest[0])
        command = command.commands[rest.pop(0)]
    with pytest.raises(TyperException) as refused:
        command.make_context(" ".join(path), rest, obj=None)
    return usage_error(refused.value)


def test_a_number_to_keep_that_is_none_says_what_is_accepted() -> None:
    assert "not in 0 to 400" in said("backup", "policy", "set", "nightly", "--keep-daily", "-1").message


def test_the_size_of_a_disk_is_hinted_at_the_command_that_has_it() -> None:
    assert "vgpuctl vm resize-disk NAME --size" in str(said("vm", "resize", "train", "--size", "80G").hint)


def test_one_time_is_no_times() -> None:
    assert (times(1), times(0), times(2)) == ("1 time", "0 times", "2 times")


def test_names_of_others_tenants_are_read_where_a_snapshot_or_a_vm_is_named() -> None:
    for words, name, means in (
        (("volume", "create", "twin", "--from-snapshot", "team/data/before"), "from_snapshot", "data/before"),
        (("create-vm", "twin", "-p", "small", "--from-snapshot", "team/train/before"), "from_snapshot", "train/before"),
        (("backup", "policy", "create", "nightly", "--vm", "team/train"), "vm", ["train"]),
    ):
        command, rest = load(words[0], ENTRIES[words[0]]), list(words[1:])
        while hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        context = command.make_context("x", rest, obj=None)
        assert (context.params[name], context.params["tenant"]) == (means, "team")
