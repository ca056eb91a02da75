# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client.autostart import connect_running
from orchestrator.core.errors import VgpuctlError
from tests.fakes.typed import Cli


def _newest(cli: Cli, number: int = 1) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("audit", "list", "--limit", str(number), "-o", "json").out)
    return found


def _what(record: dict[str, Any]) -> tuple[str, str, str]:
    return record["action"], record["subject"], record["outcome"]


def test_a_refusal_of_a_change_is_written_down_and_one_of_a_look_is_not(cli: Cli) -> None:
    assert cli("start-vm", "nobody").code == 4
    expected = ("POST /v1/vms/{name}/start", "/v1/vms/nobody/start of default", "refused: vm.unknown")
    assert _what(_newest(cli)[0]) == expected
    assert cli("show-vm", "nobody").code == 4
    assert cli("show-vm", "other").code == 4
    assert _what(_newest(cli)[0]) == expected


def test_whoever_is_denied_and_whoever_shows_no_good_token_is_written_down(
    cli: Cli, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = json.loads(cli("token", "create", "--role", "read-only", "-o", "json").out)
    for token, actor, code in (
        (made["token"], f"token:{made['about']['id']}", "access.denied"),
        ("vgpuctl_wrong", "unknown", "token.refused"),
    ):
        with monkeypatch.context() as acting:
            acting.setenv("VGPUCTL_TOKEN", token)
            connection = connect_running(state)
        assert connection is not None
        with pytest.raises(VgpuctlError):
            connection.call("DELETE", "/v1/tenants/default")
        record = _newest(cli)[0]
        assert record["actor"] == actor
        assert _what(record) == ("DELETE /v1/tenants/{tenant}", "/v1/tenants/default", f"refused: {code}")
        assert token not in json.dumps(record)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/v1/vms", {"user_data": "planted"}, "request.invalid"),
        ("PUT", "/v1/vms", {}, "request.method"),
        ("DELETE", "/v1/planted%1b%0a", None, "request.no_such_path"),
        ("DELETE", "/v1/vms/x?tenant=planted%3F", None, "vm.unknown"),
        ("POST", "/v1/vms", {"user_data": "A" * 2**21}, "request.too_large"),
    ],
)
def test_of_a_refused_request_no_body_no_query_and_no_raw_bytes_are_kept(
    cli: Cli, state: Path, method: str, path: str, body: dict[str, object] | None, code: str
) -> None:
    connection = connect_running(state)
    assert connection is not None
    with pytest.raises(VgpuctlError):
        connection.call(method, path, body)
    record = _newest(cli)[0]
    assert record["outcome"] == f"refused: {code}"
    assert record["subject"].isprintable()
    assert len(record["subject"]) <= 200
    assert "user_data" not in json.dumps(record)
    assert "?" not in record["subject"]


def test_a_verdict_tells_how_much_is_sealed_and_a_wrong_head_is_refused(cli: Cli) -> None:
    assert "not sealed yet" in cli("audit", "verify").out
    assert "[audit.head_invalid]" in cli("audit", "verify", "--head", "x").err
    outcome = cli("audit", "verify", "--head", "1:" + "a" * 64)
    assert outcome.code == 9
    assert "[audit.broken]" in outcome.err
    assert "record 1 is not the one whose seal was noted" in outcome.err


def test_times_are_ages_in_a_table_and_exact_in_json(cli: Cli) -> None:
    assert cli("start-vm", "nobody").code == 4
    table, wide = cli("audit", "list", "--limit", "1").out, cli("audit", "list", "--limit", "1", "-o", "wide").out
    assert (table.split()[1], "UTC (" in wide) == ("AGE", True)
    at = str(_newest(cli)[0]["at"])
    assert at not in table + wide
    assert at[:10] in wide


def test_a_token_is_told_by_its_name_first_and_found_by_it(
    cli: Cli, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = json.loads(cli("token", "create", "--name", "nightly-run-2", "-o", "json").out)
    with monkeypatch.context() as acting:
        acting.setenv("VGPUCTL_TOKEN", made["token"])
        connection = connect_running(state)
    assert connection is not None
    with pytest.raises(VgpuctlError):
        connection.call("DELETE", "/v1/tenants/default")
    monkeypatch.setenv("COLUMNS", "80")
    for who in (f"token:{made['about']['id']}", "nightly-run-2"):
        shown = cli("audit", "list", "--who", who).out.splitlines()
        assert shown[1].split()[2] == "nightly-run-2"


def test_records_of_a_time_and_refusals_alone_are_listed(cli: Cli) -> None:
    assert cli("start-vm", "nobody").code == 4
    told = json.loads(cli("audit", "list", "--refused", "--since", "1h", "-o", "json").out)
    assert told[0]["outcome"] == "refused: vm.unknown"
    assert {one["outcome"].partition(":")[0] for one in told} == {"refused"}
    assert cli("audit", "list", "--until", "1h").out == "no records\n"
    assert len(json.loads(cli("audit", "list", "--since", "2020-01-01T00:00+01:00", "-o", "json").out)) > 0


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("--since", "yesterday"), "since.invalid", "45m, 8h, 30d"),
        (("--since", "2026-12-01"), "since.invalid", "2026-12-01T10:00Z"),
        (("--until", "99999d"), "until.out_of_range", "at most"),
        (("--since", "1h", "--until", "2h"), "until.invalid", "a later moment"),
    ],
)
def test_a_time_that_is_none_is_refused(cli: Cli, words: tuple[str, ...], code: str, hint: str) -> None:
    refused = cli("audit", "list", *words)
    assert (refused.code, refused.out) == (2, "")
    assert f"[{code}]" in refused.err
    assert hint in refused.err
