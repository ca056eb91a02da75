# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path

import pytest

from orchestrator.core.tenancy.quota import COUNTS
from tests.fakes.typed import Cli

PAGE = Path(__file__).parents[3] / "docs/howto/share-between-tenants.md"


@pytest.fixture
def research(cli: Cli) -> str:
    assert cli("tenant", "create", "research").code == 0
    return "research"


def test_a_tenant_is_made_shown_and_deleted(cli: Cli) -> None:
    assert cli("tenant", "create", "short").code == 0
    assert cli("tenant", "create", "short").code == 0
    assert "short" in cli("tenant", "list").out
    assert json.loads(cli("tenant", "show", "short", "-o", "json").out)["name"] == "short"
    assert cli("tenant", "delete", "short").out == "tenant short is deleted\n"
    assert cli("tenant", "show", "short").code == 4


@pytest.mark.parametrize(
    ("noun", "name"),
    [
        ("tenant", ("research",)),
        ("network", ("default", "--shared")),
        ("image", ("guest",)),
        ("volume", ("research/paper",)),
    ],
)
def test_what_it_is_for_is_said_shown_and_picked_by(cli: Cli, research: str, noun: str, name: tuple[str, ...]) -> None:
    assert cli("volume", "create", "research/paper", "--size", "1GiB").code == 0
    done = cli(noun, "set", *name, "--description", "nodes of lab A", "--label", "Team=a", "--label", "stage=test")
    assert done.code == 0, done.err
    assert cli(noun, "set", *name, "--unlabel", "stage").code == 0
    shown = cli(noun, "show", *name).out
    assert "nodes of lab A" in shown
    assert "Team=a" in shown
    assert "stage" not in shown
    assert cli(noun, "list", "-l", "Team=a,!stage", "-o", "name").out == f"{name[0].removeprefix('research/')}\n"
    assert cli(noun, "list", "-l", "Team=b", "-o", "name").out.split() == []
    assert cli(noun, "set", *name, "--description", "", "--unlabel", "Team").code == 0


def test_members_come_and_go(cli: Cli, research: str) -> None:
    assert cli("tenant", "add-member", research, "uid:4711", "--role", "tenant-admin").code == 0
    listed = json.loads(cli("tenant", "members", research, "-o", "json").out)
    assert listed == [{"tenant": research, "subject": "uid:4711", "role": "tenant-admin"}]
    assert cli("tenant", "remove-member", research, "uid:4711").code == 0
    assert cli("tenant", "members", research).out == "no members\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("tenant create Bad_Name", "tenant.name_invalid"),
        ("tenant delete default", "tenant.default"),
        ("tenant add-member default somebody", "member.subject_invalid"),
        ("tenant add-member default uid:5 --role admin", "role.invalid"),
        ("token create --role admin", "role.invalid"),
        ("token create --lifetime 8", "lifetime.invalid"),
        ("token create --lifetime 99999d", "lifetime.out_of_range"),
        ("token create --tenant absent", "tenant.unknown"),
        ("token revoke 0123", "token.unknown"),
        ("token create --save /", "token.unwritable"),
        ("quota set default devices", "quota.invalid"),
        ("quota set default gpu=1", "quota.resource_unknown"),
        ("quota set absent devices=1", "tenant.unknown"),
        ("policy set default lease", "policy.invalid"),
        ("policy set default grace=1d", "policy.invalid"),
        ("policy set default disk-grace=none", "request.invalid"),
        ("policy set absent lease=8h", "tenant.unknown"),
        ("policy set default max-priority=highest", "policy.invalid"),
        ("policy set default preempt=true", "policy.invalid"),
        ("policy set default maintenance=22:00", "policy.invalid"),
        ("policy set default isolation=all", "policy.invalid"),
        ("tenant set absent --isolation gpu", "tenant.unknown"),
        ("tenant set absent --label a=b", "tenant.unknown"),
        ("tenant set default", "cli.nothing_to_set"),
        ("tenant set default --label A/b=c", "label.invalid"),
        ("tenant list -l a==b", "label.selector_invalid"),
        ("network set default --shared", "cli.nothing_to_set"),
        ("network set absent --shared --description x", "network.unknown"),
        ("image set guest", "cli.nothing_to_set"),
        ("image set absent --label a=b", "image.unknown"),
        ("image list -l a==b", "label.selector_invalid"),
        ("volume set absent", "cli.nothing_to_set"),
        ("volume set absent --label a=b", "volume.unknown"),
        ("volume list -l a==b", "label.selector_invalid"),
        ("create-vm x --profile t4-small --lease 8", "lease.invalid"),
        ("create-vm x --profile t4-small --until tomorrow", "until.invalid"),
        ("create-vm x --profile t4-small --tenant Bad_Name", "tenant.name_invalid"),
    ],
)
def test_bad_input_gets_one_line_and_changes_nothing(cli: Cli, words: str, code: str) -> None:
    before = cli("token", "list", "-o", "json").out
    outcome = cli(*words.split())
    assert outcome.code in {2, 4, 5}
    assert outcome.err.startswith("error: ")
    assert f"[{code}]" in outcome.err
    assert cli("token", "list", "-o", "json").out == before


def test_a_token_is_shown_once_and_ends_when_it_is_revoked(
    cli: Cli, research: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = json.loads(cli("token", "create", "--tenant", research, "--lifetime", "8h", "-o", "json").out)
    listed = cli("token", "list", "--tenant", research)
    assert made["about"]["id"] in listed.out
    assert made["token"] not in listed.out
    with monkeypatch.context() as acting:
        acting.setenv("VGPUCTL_TOKEN", made["token"])
        assert [one["name"] for one in json.loads(cli("tenant", "list", "-o", "json").out)] == [research]
        assert "[access.denied]" in cli("host", "list").err
        assert "[tenant.unknown]" in cli("show-vm", "train", "--tenant", "default").err
    assert cli("token", "revoke", made["about"]["id"], "--tenant", research).code == 0
    monkeypatch.setenv("VGPUCTL_TOKEN", made["token"])
    assert "[token.refused]" in cli("tenant", "list").err


def test_a_saved_token_is_its_owners_alone_and_never_printed(
    cli: Cli, research: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    outcome = cli("token", "create", "--tenant", research, "--save", str(file))
    assert file.read_text().strip() not in outcome.out + outcome.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = cli("token", "create", "--tenant", research, "--save", str(file))
    assert "[token.unwritable]" in again.err
    monkeypatch.setenv("VGPUCTL_TOKEN_FILE", str(file))
    assert [one["name"] for one in json.loads(cli("tenant", "list", "-o", "json").out)] == [research]


def test_a_quota_is_set_shown_and_taken_away(cli: Cli, research: str) -> None:
    assert cli("quota", "set", research, "devices=2", "framebuffer=40GiB", "devices:L40S=1").code == 0
    lines = {line.split()[0]: line.split()[1:] for line in cli("quota", "show", research).out.splitlines()[1:]}
    assert lines["devices"] == ["2", "0"]
    assert lines["framebuffer"] == ["40GiB", "0"]
    assert lines["devices:L40S"] == ["1", "0"]
    assert lines["vms"] == ["none", "0"]
    assert cli("quota", "set", research, "devices=none").code == 0
    shown = json.loads(cli("quota", "show", research, "-o", "json").out)
    assert {"resource": "devices", "limit": None, "used": 0} in shown
    assert cli("quota", "set", "*", "devices=4").code == 0
    assert json.loads(cli("quota", "show", "*", "-o", "json").out) == [{"resource": "devices", "limit": 4, "used": 0}]
    pool = {"tenant": "*", "resource": "devices", "limit": 4, "used": 0}
    assert pool in json.loads(cli("quota", "list", "-o", "json").out)
    assert cli("quota", "set", "*", "devices=none").code == 0


def test_a_policy_is_set_shown_and_taken_back(cli: Cli) -> None:
    assert cli("tenant", "create", "policed").code == 0
    shown = cli("policy", "set", "policed", "lease=8h", "max-lease=30d", "disk-grace=36h")
    assert shown.out.split()[:6] == ["lease", "8h", "max-lease", "30d", "disk-grace", "36h"]
    assert shown.out.split()[6:10] == ["max-priority", "normal", "isolation", "instance"]
    assert shown.out.split()[10:14] == ["encryption", "optional", "preempt", "no"]
    assert shown.out.split()[14:] == ["maintenance", "stop", "pool", "none"]
    assert cli("policy", "set", "policed", "lease=none").code == 0
    kept = json.loads(cli("policy", "show", "policed", "-o", "json").out)
    assert kept == {"default_lease_s": None, "max_lease_s": 30 * 86400, "disk_grace_s": 36 * 3600} | {
        "max_priority": "normal",
        "encryption": "optional",
        "isolation": "instance",
        "preempt": False,
        "maintenance": "stop",
        "pool": None,
    }
    changed = cli("policy", "set", "policed", "max-priority=high", "preempt=yes", "maintenance=22:00-05:00")
    assert changed.out.split()[6:] == [
        "max-priority", "high", "isolation", "instance", "encryption", "optional", "preempt", "yes",
        "maintenance", "22:00-05:00", "pool", "none",
    ]  # fmt: skip


@pytest.mark.parametrize("isolation", ["none", "instance", "gpu", "host"])
def test_how_far_a_tenant_is_kept_apart_is_set(cli: Cli, research: str, isolation: str) -> None:
    assert cli("tenant", "set", research, "--isolation", isolation).out.split() == [
        "name", research, "isolation", isolation,
    ]  # fmt: skip
    assert json.loads(cli("policy", "show", research, "-o", "json").out)["isolation"] == isolation


def test_quotas_and_policies_of_all_tenants_are_listed(cli: Cli) -> None:
    assert cli("tenant", "create", "listed").code == 0
    assert cli("quota", "set", "listed", "devices=2", "framebuffer=40GiB").code == 0
    assert cli("policy", "set", "listed", "lease=8h", "max-priority=high").code == 0
    listed = json.loads(cli("quota", "list", "-o", "json").out)
    assert [(one["resource"], one["limit"]) for one in listed if one["tenant"] == "listed"] == [
        ("devices", 2),
        ("framebuffer", 40 * 1024),
    ]
    policies = {one["tenant"]: one for one in json.loads(cli("policy", "list", "-o", "json").out)}
    shown = json.loads(cli("policy", "show", "listed", "-o", "json").out)
    assert policies["listed"] == {"tenant": "listed", **shown}
    line = next(one for one in cli("policy", "list").out.splitlines() if one.startswith("listed"))
    assert line.split()[1] == "8h"
    assert cli("tenant", "delete", "listed").code == 0


def test_the_only_tenant_of_a_token_is_what_commands_are_about(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("tenant", "create", "only").code == 0
    made = cli("token", "create", "--tenant", "only", "--role", "tenant-admin", "-o", "json").json()
    monkeypatch.setenv("VGPUCTL_TOKEN", made["token"])
    for words in ("quota show", "policy show", "token list", f"token show {made['about']['id']}"):
        told = cli(*words.split())
        assert told.code == 0, told.err
    assert cli("token", "create", "-o", "json").json()["about"]["tenant"] == "only"


def test_help_and_page_say_of_every_resource_what_its_quota_counts(cli: Cli) -> None:
    shown, page = cli("quota", "set", "--help").out, PAGE.read_text()
    for resource, counts in COUNTS.items():
        assert f"{resource:12}{counts}" in shown
        assert f"`{resource}`" in page


def test_a_tenants_key_is_rotated_and_destroyed_only_when_that_is_said(
    cli: Cli, research: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.key"
    own.write_text(base64.b64encode(bytes(range(32))).decode() + "\n")
    assert cli("volume", "create", "research/private", "--size", "1GiB", "--encrypted").code == 0
    assert "needs no key yet" in cli("tenant", "key", "rotate", "default").out
    for origin, more in (("site", ()), ("tenant", ("--key-file", str(own)))):
        rotated = cli("tenant", "key", "rotate", research, *more).out
        shown = json.loads(cli("tenant", "key", "show", research, "-o", "json").out)
        assert rotated == f"tenant research has key {shown['id']}; encrypted disks and volumes: 1\n"
        assert (shown["origin"], shown["volumes"]) == (origin, 1)
    refused = cli("tenant", "key", "revoke", research)
    assert (refused.code, "[cli.not_confirmed]" in refused.err) == (2, True)
    shown = json.loads(cli("volume", "show", "research/private", "-o", "json").out)
    assert shown["encryption"] == "luks"
    assert cli("create-vm", "train", "--tenant", research, "-p", "t4-small", "--no-start", "--encrypted").code == 0
    ours, theirs = os.openpty()
    os.write(ours, b"y\nn\n")
    with os.fdopen(theirs) as terminal, monkeypatch.context() as typing:
        typing.setattr("sys.stdin", terminal)
        asked = cli("tenant", "key", "revoke", research)
    os.close(ours)
    assert (asked.code, "destroy all that is on private, the disk of VM train?" in asked.err) == (6, True), asked
    assert "disks and volumes that nobody reads again: " in cli("tenant", "key", "revoke", research, "--yes").out
    assert "keyless" in cli("volume", "show", "research/private").out
    assert cli("volume", "create", "again", "--size", "1GiB", "--encrypted", "--pool", "none").code == 0
