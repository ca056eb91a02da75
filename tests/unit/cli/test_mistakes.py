# SPDX-License-Identifier: Apache-2.0
"""Mistakes of people who are new here: one clear line, a hint that helps, and nothing is left behind."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from orchestrator.cli.commands.security_group import check_on
from orchestrator.cli.files import write_new
from orchestrator.cli.parameters import gpu_place
from orchestrator.core.errors import InvalidInput, NotFound
from tests.fakes.typed import Cli


@pytest.fixture
def web(cli: Cli) -> str:
    assert cli("tenant", "create", "web").code == 0
    return "web"


def test_a_token_that_was_refused_leaves_no_file(cli: Cli, web: str, tmp_path: Path) -> None:
    file = tmp_path / "bob.token"
    for words in (["--tenant", "wbe"], ["--tenant", web, "--role", "operator"]):
        assert cli("token", "create", *words, "--save", str(file)).code in {2, 4}
        assert not file.exists()
    assert cli("token", "create", "--tenant", web, "--save", str(file)).code == 0
    kept = file.read_text()
    assert cli("token", "create", "--tenant", web, "--save", str(file)).code == 2
    assert file.read_text() == kept


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("quota set web vms=1 vms=2", "vms is given more than once"),
        ("policy set web lease=8h preempt=yes lease=9h", "lease is given more than once"),
        ("policy set web max-lease=8h max_lease=9h", "max_lease is given more than once"),
        ("tenant set web --label a=1 --label a=2", "label a is given more than once"),
        ("tenant set web --label a=1 --unlabel a", "label a is given more than once"),
        ("host set t4-host --label a=1 --label a=1", "label a is given more than once"),
        ("create-vm x -p t4-small --label a=1 --label a=2", "label a is given more than once"),
        ("vm set x --unlabel a --label a=2", "label a is given more than once"),
    ],
)
def test_one_thing_is_set_to_one_value(cli: Cli, web: str, words: str, told: str) -> None:
    before = [cli(verb, "show", web, "-o", "json").out for verb in ("quota", "policy", "tenant")]
    refused = cli(*words.split())
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err
    assert [cli(verb, "show", web, "-o", "json").out for verb in ("quota", "policy", "tenant")] == before


@pytest.mark.parametrize("words", ["image list -l", "capacity --profile", "create-vm x --vcpus"])
def test_an_option_without_its_value_names_the_help_of_its_command(cli: Cli, words: str) -> None:
    refused = cli(*words.split())
    command = words.partition(" -")[0].removesuffix(" x")
    assert (refused.code, f"hint: run 'vgpuctl {command} --help'" in refused.err) == (2, True)


def test_csv_is_empty_where_there_is_nothing_and_exact_where_there_is(cli: Cli, web: str) -> None:
    for words in ("tenant list", "image list", "audit list", "host list", "token list"):
        for row in csv.DictReader(io.StringIO(cli(*words.split(), "-o", "csv").out)):
            assert not {"-"} & set(row.values()), (words, row)
            assert not any("ago" in (value or "") for value in row.values()), (words, row)


def test_a_file_that_is_not_there_is_told_of_the_option_that_named_it(cli: Cli) -> None:
    refused = cli("create-vm", "x", "-p", "t4-small", "--licence-token", "nofile")
    assert (refused.code, "give a text file for --licence-token" in refused.err) == (2, True)


def test_a_network_is_of_a_tenant_or_of_the_site(cli: Cli, web: str) -> None:
    before = cli("network", "list", "-o", "json").out
    for words in (
        "create blue --shared --tenant web",
        "create web/blue --shared",
        "delete default --shared --tenant web",
    ):
        refused = cli("network", *words.split())
        assert (refused.code, refused.out) == (2, "")
        assert "a tenant's own or --shared" in refused.err
    assert cli("network", "list", "-o", "json").out == before
    hint = cli("network", "delete", "missing", "--tenant", web).err
    assert "--shared --tenant" not in hint


@pytest.mark.parametrize("text", [None, "", "two words\n"])
def test_a_context_takes_a_token_file_that_has_a_token(cli: Cli, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
        file.chmod(0o600)
    before = cli("context", "list", "-o", "json").out
    refused = cli("context", "add", "pool", "--url", "https://h:1", "--token-file", str(file))
    assert (refused.code, refused.out) == (2, "")
    assert "[token." in refused.err
    assert cli("context", "list", "-o", "json").out == before


def test_a_moment_in_the_past_is_said_in_two_ways(cli: Cli) -> None:
    refused = cli("audit", "list", "--since", "tomorrow")
    assert (refused.code, "or a moment: 2026-12-01T10:00Z" in refused.err) == (2, True)


def test_what_a_context_lacks_is_said_before_what_it_is_called(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert cli("context", "add", "pool", "--url", "https://h:1").code == 0
    assert "[context.incomplete]" in cli("context", "add", "pool").err
    assert "with other settings" in cli("context", "add", "pool", "--url", "https://h:1", "--tenant", "a").err
    assert json.loads(cli("context", "list", "-o", "json").out)[0]["tenant"] is None


def test_giving_up_a_host_is_confirmed_by_a_command_that_can_be_pasted(cli: Cli) -> None:
    assert "'vgpuctl host forget gone --confirm gone' does it" in cli("host", "forget", "gone").err
    by_hand = cli("host", "evacuate", "gone", "--fenced-by-hand").err
    assert "'vgpuctl host evacuate gone --fenced-by-hand --confirm gone' does it" in by_hand


def test_tokens_of_all_tenants_are_listed_and_one_is_found_by_its_id(cli: Cli, web: str) -> None:
    made = {
        tenant: json.loads(cli("token", "create", "--tenant", tenant, *role, "-o", "json").out)["about"]["id"]
        for tenant, role in ((web, ()), ("default", ()), ("*", ("--role", "read-only")))
    }
    assert set(made.values()) <= {row["id"] for row in json.loads(cli("token", "list", "-o", "json").out)}
    assert made["default"] not in cli("token", "list", "--tenant", web).out
    assert cli("token", "show", made["*"]).code == 0
    elsewhere = cli("token", "revoke", made["default"], "--tenant", web, "--yes")
    assert (elsewhere.code, "[token.unknown]" in elsewhere.err) == (4, True)
    for one in made.values():
        assert cli("token", "revoke", one, "--yes").code == 0
        assert "revoked" in cli("token", "show", one).out


def test_a_role_that_holds_everywhere_is_told_where_it_is_given(cli: Cli, web: str) -> None:
    assert "--tenant '*'" in cli("token", "create", "--tenant", web, "--role", "operator").err


def test_tenant_show_without_a_name_shows_ones_own(cli: Cli, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(cli("tenant", "show", "-o", "json").out)["name"] == "default"
    monkeypatch.setenv("VGPUCTL_TENANT", web)
    assert json.loads(cli("tenant", "show", "-o", "json").out)["name"] == web


def test_a_group_that_is_not_where_it_is_withdrawn_from_is_said() -> None:
    group = {"name": "web", "uses": [{"vm": "a", "network": None}]}
    check_on(group, {"vm": "a", "network": None})
    for use, words in (({"vm": "b", "network": None}, "VM b"), ({"vm": "a", "network": "n"}, "VM a on network n")):
        with pytest.raises(NotFound) as refused:
            check_on(group, use)
        assert refused.value.message == f"group web is not on {words}"
        assert "it is on VM a;" in (refused.value.hint or "")


@pytest.mark.parametrize("words", [("gpu-1", "41:00.0"), ("41:00.0", "gpu-1"), ("gpu-1/0000:41:00.0", None)])
def test_a_gpu_is_named_in_either_order_or_as_lists_have_it(words: tuple[str, str | None]) -> None:
    assert gpu_place(*words) == ("gpu-1", "0000:41:00.0")


@pytest.mark.parametrize("words", ["health reset gpu-1", "gpu show gpu-1", "gpu cleanings --host a --gpu b/41:00.0"])
def test_half_a_gpu_and_one_of_two_hosts_are_refused_with_the_form(cli: Cli, words: str) -> None:
    ended = cli(*words.split())
    assert ended.code == 2
    assert "HOST/ADDRESS" in ended.err or "a GPU is of one host" in ended.err


@pytest.fixture
def vm_and_volume(cli: Cli) -> None:
    assert cli("create-vm", "miner", "--profile", "t4-small").code == 0
    assert cli("volume", "create", "ore", "--size", "1GiB").code == 0


@pytest.mark.parametrize("words", ["volume attach miner ore", "volume detach miner ore"])
def test_two_names_in_the_other_order_are_told_so(cli: Cli, vm_and_volume: None, words: str) -> None:
    refused = cli(*words.split())
    assert refused.code == 4
    assert "type them the other way round" in refused.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("volume attach data:ro train", "'vgpuctl volume attach NAME VM --read-only'"),
        ("create-vm x -p t4-small --volume data:rw", "NAME:ro in --volume and in files"),
        ("explain -p t4-small --volume data:RO", "NAME:ro in --volume and in files"),
        ("create-vm m -p GRID T4-2Q", 'in quotes: -p "GRID T4-2Q"'),
        ("capacity -p GRID T4-2Q", 'in quotes: -p "GRID T4-2Q"'),
        ("vm resize m -p NVIDIA RTX 6000 Ada-12Q", 'in quotes: -p "GRID T4-2Q"'),
        ("create-vm x -p t4-small --from-backup=", "--from-backup must not be empty"),
        ("create-vm x -p t4-small --from-snapshot= --image a", "--from-snapshot"),
        ("volume set ore --max-iops -3", "hint: run 'vgpuctl volume set --help'"),
        ("health quarantine t4-host 41:00.0 --reason=", "reason: is empty"),
        ("health quarantine t4-host 41:00.0 --reason=", "hint: run 'vgpuctl health quarantine --help'"),
        ("host reboot", "for example 'vgpuctl host reboot"),
        ("vm snapshot list", "for example 'vgpuctl vm snapshot list"),
        ("tenant key rotate", "for example 'vgpuctl tenant key rotate"),
        ("backup policy set nightly", "nothing is to be set"),
        ("backup target set nas", "nothing is to be set"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(cli: Cli, words: str, told: str) -> None:
    refused = cli(*words.split())
    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err


def test_what_is_clean_is_not_told_as_what_never_was(cli: Cli, vm_and_volume: None) -> None:
    assert cli("gpu", "cleanings", "--sanitising").out == "nothing is sanitising\n"


def test_a_file_in_the_way_is_called_one(tmp_path: Path) -> None:
    there = tmp_path / "secret"
    there.write_text("kept")
    with pytest.raises(InvalidInput) as refused:
        write_new({there: (b"new", 0o600)}, what="secret", named="file")
    assert (there.read_text(), refused.value.hint) == ("kept", "name another file, or move what is there away")
