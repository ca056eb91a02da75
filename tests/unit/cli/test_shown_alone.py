# SPDX-License-Identifier: Apache-2.0
"""What a list shows can be shown alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.typed import Cli


def test_a_token_is_shown_alone_and_says_whether_it_is_good(cli: Cli) -> None:
    assert cli("tenant", "create", "green").code == 0
    made = json.loads(cli("token", "create", "--tenant", "green", "--name", "ci", "-o", "json").out)["about"]
    shown = cli("token", "show", made["id"], "--tenant", "green").out
    assert [line for line in shown.splitlines() if line.startswith(("expires", "used", "revoked"))] == [
        "expires  never",
        "used     never",
        "revoked  no",
    ]
    assert cli("token", "revoke", made["id"], "--tenant", "green").code == 0
    assert "revoked  no" not in cli("token", "show", made["id"], "--tenant", "green").out
    refused = cli("token", "show", "nothing", "--tenant", "green")
    assert (refused.code, refused.out) == (4, "")
    assert "[token.unknown]" in refused.err


def test_an_audit_record_is_shown_alone(cli: Cli) -> None:
    newest = json.loads(cli("audit", "list", "--limit", "1", "-o", "json").out)[0]
    assert json.loads(cli("audit", "show", str(newest["sequence"]), "-o", "json").out) == newest
    refused = cli("audit", "show", str(newest["sequence"] + 1000))
    assert (refused.code, refused.out) == (4, "")
    assert "[audit.unknown]" in refused.err


def test_a_context_is_shown_alone(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert cli("context", "add", "site", "--url", "https://gpu.example.org:8443", "--tenant", "research").code == 0
    told = json.loads(cli("context", "show", "site", "-o", "json").out)
    assert (told["url"], told["tenant"], told["current"]) == ("https://gpu.example.org:8443", "research", True)
    assert cli("context", "show", "nothing").code == 4


def test_a_refusal_of_many_gpus_says_why_before_it_says_which() -> None:
    from orchestrator.cli.failure import lines_of
    from orchestrator.core.errors import NoCapacity, Reason

    gpus = tuple(f"gpu-{number}/0000:41:00.0" for number in range(20))
    many = Reason(code="gpu.full", message="the GPU is full", subjects=gpus, count=36)
    one = Reason(code="host.full", message="too few vCPUs", subjects=("gpu-1",), count=1)
    error = NoCapacity("gpu.no_capacity", "nothing fits", reasons=(many, one))
    told = ", ".join(gpus[:6])
    assert lines_of(error)[1:3] == [
        f"  the GPU is full [gpu.full]: {told} and 30 more",
        "  gpu-1: too few vCPUs [host.full]",
    ]


@pytest.mark.parametrize("words", ["gpu list", "gpu map", "gpu racks", "host list"])
def test_a_model_that_no_gpu_is_of_is_an_error_and_no_empty_list(cli: Cli, words: str) -> None:
    refused = cli(*words.split(), "--model", "h100")
    assert (refused.code, refused.out) == (4, "")
    assert "[gpu.model_unknown]" in refused.err
    assert "Tesla T4" in refused.err
    assert cli(*words.split(), "--model", "tesla").code == 0
