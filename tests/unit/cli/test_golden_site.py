# SPDX-License-Identifier: Apache-2.0
"""Screens about a site: who may do what, what is offered, what is there. Read them as somebody who is tired."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from orchestrator.cli import ages
from orchestrator.cli.commands import audit, mig, operation, token, volume
from orchestrator.cli.commands.driver import CHECKED, LOCKED
from orchestrator.cli.session import Format
from orchestrator.cli.table import Column, list_lines
from tests.fakes.fake_world import FakeClock
from tests.fakes.running import running_server
from tests.unit.cli.golden_screens import NARROW, WIDE, check, check_view, file_name, told_by
from tests.unit.cli.test_mig import GPUS

NOW = FakeClock().now() + 7230
STORY = (
    "create-vm train --profile t4-small",
    "volume create data --size 20G",
    "volume create data --size 20GiB --tenant nobody",
    "network create blue --subnet 10.88.7.0/24",
    "network add office --bridge br0 --vlan 120",
    "tenant create research",
    "tenant add-member research uid:1000 --role tenant-admin",
    "quota set research devices=2 framebuffer=40G vms=none",
    "policy set research max-lease=30d isolation=gpu",
    "context add site --url https://gpu.example.org:8443 --tenant research",
    "context add here --state /srv/vgpuctl",
    "context use",
    "image guest-driver guest 580.95.05",
)
VIEWS = (
    "tenant list",
    "tenant show research",
    "tenant members research",
    "quota show research",
    "policy show research",
    "context list",
    "driver bundle list",
    "driver lock show",
    "driver check",
    "mig show gpu1",
    "image show guest",
    "network list --all-tenants",
    "network show default",
    "network show office",
    "host check gpu1",
    "volume list",
    "volume show data",
    "whoami",
    "version",
    "operation show 00000000",
    "gpu map -o csv",
    "mig show gpu1 -o csv",
    "context list -o name",
)
LONG_VALUES = ("image show", "whoami", "version", "driver bundle list", "driver lock show", "gpu map", "mig show")
"""Details, CSV and hints are never cut: what does not fit wraps in the terminal."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch, running_server(tmp_path_factory.mktemp("site")) as state:
        patch.setenv("VGPUCTL_STATE", str(state))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("COLUMNS", raising=False)
        patch.setattr(ages, "now", lambda: NOW)
        yield {words: _steady(told_by(words)) for words in STORY}


def _steady(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"0\.1\.0\+[0-9a-z.]+", "0.1.0+g286a810a.s5e2f81c0", text)
    text = re.sub(r"/\S+/site[0-9]+", "/var/lib/vgpuctl", re.sub(r"(you +)uid:[0-9]+", r"\1uid:1000", text))
    return re.sub(r"(?m)^(id +)[0-9a-f-]{36}$", r"\g<1>286a810a-0000-4000-8000-000000000000", text)


@pytest.mark.parametrize("words", STORY)
def test_a_story_of_a_site_is_told_as_it_was(told: dict[str, str], words: str) -> None:
    check(f"site-{file_name(words)}", told[words])


@pytest.mark.parametrize("words", VIEWS)
@pytest.mark.usefixtures("told")
def test_a_view_of_a_site_looks_as_it_did(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_view(words, lambda: _steady(told_by(words)), LONG_VALUES, monkeypatch)


def _token(name: str | None, **more: str | None) -> dict[str, Any]:
    plain = {"id": "0b14c3893b80", "name": name, "tenant": "research", "role": "tenant-user", "made_by": "uid:1000"}
    times = {"created_at": "2027-01-14T08:00:00Z", "expires_at": None, "revoked_at": None, "last_used_at": None}
    return {**plain, **times, **more}


def _record(sequence: int, action: str, subject: str, outcome: str) -> dict[str, Any]:
    at = "2027-01-15T07:00:00Z"
    return {
        "sequence": sequence,
        "at": at,
        "actor": "uid:1000",
        "action": action,
        "subject": subject,
        "outcome": outcome,
    }


def _operation(kind: str, subject: str, state: str) -> dict[str, Any]:
    number = "523b91de-0000-4000-8000-000000000001"
    return {
        "id": number, "kind": kind, "subject_name": subject, "subject": number, "state": state,
        "created_at": "2027-01-15T07:00:00Z", "waits_for_host_since": None, "waits_for_host": None,
    }  # fmt: skip


def _checked(subject: str, part: str, verdict: str, observed: str | None, reason: str) -> dict[str, Any]:
    return {
        "subject": subject, "part": part, "verdict": verdict, "wanted": "580.95.02", "observed": observed,
        "reason": reason,
    }  # fmt: skip


ROWS: Mapping[str, tuple[Sequence[Mapping[str, Any]], Sequence[Column]]] = {
    "token-list": (
        [
            _token("ci", expires_at="2027-02-14T08:00:00Z", last_used_at="2027-01-15T09:00:00Z"),
            _token(None),
            _token("old", expires_at="2027-01-15T07:00:00Z"),
            _token("lost", revoked_at="2027-01-15T07:00:00Z"),
        ],
        token.COLUMNS,
    ),
    "audit-list": (
        [
            _record(12004, "create_token tenant-user", "0b14c3893b80 (ci)", "done"),
            _record(12003, "set_quota devices=2, framebuffer=40GiB", "research", "done"),
            _record(12002, "POST /v1/vms", "/v1/vms of research", "refused: gpu.no_capacity"),
            _record(12001, "create_vm", "research/train-of-the-week", "accepted"),
        ],
        audit.COLUMNS,
    ),
    "mig-show": (list(mig.rows(GPUS)), mig.COLUMNS),
    "operation-list-of-all-kinds": (
        [_operation("create_vm", "research/train-of-the-week", "running"), _operation("add_host", "gpu-1", "done")],
        operation.COLUMNS,
    ),
    "volume-list-of-several": (
        [
            {
                "name": "data", "tenant": "research", "size_bytes": 20 * 2**30, "state": "attached", "vm": "train",
                "host": "gpu-1", "encryption": "none", "created_at": "2027-01-15T07:00:00Z",
            },
            {
                "name": "the-whole-archive", "tenant": "research", "size_bytes": 2**40, "state": "new", "vm": None,
                "host": None, "encryption": "luks", "created_at": "2027-01-15T07:00:00Z",
            },
        ],
        volume.COLUMNS,
    ),
    "driver-check": (
        [
            _checked("host gpu-1", "host_driver", "drift", "570.124.03", "it is older"),
            _checked("VM research/train", "guest_driver", "unknown", None, "its image's driver is not known"),
        ],
        CHECKED,
    ),
    "driver-lock-show": (
        [{"group": "site", "labels": "all", "component": "host_driver", "version": "580.95.02", "sha256": "ab" * 32}],
        LOCKED,
    ),
}  # fmt: skip
AT_EVERY_WIDTH = ("audit-list", "driver-check")
"""One table whose columns are cut and left out, and one with sentences that go on in the next line."""


@pytest.mark.parametrize("name", ROWS)
def test_a_list_looks_as_it_did(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(f"rows-{name}", _listed(name, None, monkeypatch))
    for width in (NARROW, WIDE):
        text = _listed(name, width, monkeypatch)
        assert max(map(len, text.splitlines())) <= width
        if name in AT_EVERY_WIDTH:
            check(f"rows-{name}.{width}", text)


def _listed(name: str, width: int | None, patch: pytest.MonkeyPatch) -> str:
    patch.setattr(ages, "now", lambda: NOW)
    patch.delenv("COLUMNS", raising=False)
    if width is not None:
        patch.setenv("COLUMNS", str(width))
    rows, columns = ROWS[name]
    return "\n".join([*list_lines(rows, columns, Format.TABLE, "none"), ""])
