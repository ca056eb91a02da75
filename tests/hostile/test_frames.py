# SPDX-License-Identifier: Apache-2.0
"""Whatever an agent answers is a snapshot, or an error of the host: nothing else ever comes out of the link."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.core.errors import Denied, Unknown, VgpuctlError
from orchestrator.core.host import Host
from orchestrator.core.snapshot import HostSnapshot
from orchestrator.core.wire import snapshot_to_dict
from tests.fakes.fake_machine import FakeMachine, l40s, snapshot_of, t4
from tests.hostile.answers import errors, snapshots, whole
from tests.hostile.bad_agent import HELLO, Answer, BadAgentLink, answering, framed, refusing

HOST = Host(
    name="bad", address="bad.test", port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA", state="ready",
    state_reason=None, cordoned=False, machine_id=None, epoch=1, managed_gpus=(), last_seen_at=None,
)  # fmt: skip


def good() -> dict[str, Any]:
    """A snapshot with something of everything."""
    machine = FakeMachine(machine_id="m1", gpus=[t4(), l40s()])
    document: dict[str, Any] = json.loads(json.dumps(snapshot_to_dict(snapshot_of(machine))))
    document["domains"] = [{"uuid": "a", "name": "b", "state": "running", "owner": "a", "devices": ["d"]}]
    document["gpus"][0]["parents"][0]["mdevs"] = [{"uuid": "u", "type_name": "t", "owner": "a"}]
    document["volumes"] = document["seeds"] = [{"name": "n", "size_bytes": 1, "owner": "a"}]
    document["images"] = [{"name": "i", "size_bytes": 1, "owner": None}]
    return document


def cases() -> Iterator[tuple[str, Answer]]:
    yield from whole()
    yield from errors()
    yield from snapshots(good())


def outcome(answer: Answer, hello: bytes = HELLO) -> HostSnapshot | VgpuctlError:
    link = BadAgentLink(answer, hello)
    try:
        return link.observe(HOST)
    except VgpuctlError as error:
        return error


def test_every_bad_answer_is_an_error_of_the_host_or_a_snapshot_that_can_be_kept() -> None:
    seen = 0
    for name, answer in cases():
        found = outcome(answer)
        seen += 1
        if isinstance(found, HostSnapshot):
            json.dumps(snapshot_to_dict(found), ensure_ascii=False).encode()
        else:
            assert found.message.isprintable(), name
            assert len(found.message) <= 300, name
            assert len(found.details or "") <= 5000, name
            assert len(found.code) <= 60, name
            (found.message + (found.details or "") + (found.hint or "")).encode()
    assert seen > 900


def test_a_good_answer_is_read() -> None:
    found = outcome(answering(json.dumps(good())))
    assert isinstance(found, HostSnapshot)
    assert snapshot_to_dict(found)["machine_id"] == "m1"


@pytest.mark.parametrize("depth", [33, 500, 990, 3000, 100_000])
def test_an_answer_may_be_nested_no_deeper_than_any_answer_is(depth: int) -> None:
    found = outcome(answering('{"more":' + "[" * depth + "]" * depth + "}"))
    assert (type(found), getattr(found, "code", None)) == (Unknown, "agent.protocol")


def test_an_answer_is_bounded_by_what_was_asked() -> None:
    large = json.dumps({**good(), "more": "x" * 5 * 1024 * 1024})
    found = outcome(answering(large))
    assert isinstance(found, Unknown)
    assert found.code == "agent.protocol"
    fits = json.dumps({**good(), "more": "x" * 3 * 1024 * 1024})
    assert isinstance(outcome(answering(fits)), HostSnapshot)
    small = BadAgentLink(answering(json.dumps({"domain": None, "more": "x" * 1024 * 1024})))
    with pytest.raises(Unknown):
        small.observe_domain(HOST, "a")


def test_an_error_of_megabytes_is_kept_as_a_line() -> None:
    told = {"family": "denied", "code": "agent.stale_token", "message": "m" * 100_000, "details": "d" * 100_000}
    found = outcome(refusing(json.dumps(told)))
    assert isinstance(found, Denied)
    assert (len(found.message), len(found.details or "")) == (300, 4000)


@pytest.mark.parametrize("name", ["whole", "deep", "large"])
def test_a_bad_hello_is_an_agent_that_does_not_run(name: str) -> None:
    hellos = {
        "whole": framed(b'{"hello":"\\ud800"}'),
        "deep": framed(b'{"hello":' + b"[" * 90_000 + b"]" * 90_000 + b"}"),
        "large": framed(b'{"hello":{"a":"' + b"x" * 70_000 + b'"}}'),
    }
    found = outcome(answering("{}"), hellos[name])
    assert isinstance(found, VgpuctlError)
    assert found.code == "agent.not_running"
