# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import asdict, replace
from hashlib import sha256

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction
from orchestrator.core.actions.live_move import MovedVm, MoveLoad
from orchestrator.core.errors import InvalidInput, Unknown
from orchestrator.core.hosts.snapshot import HostSnapshot, Unchanged
from orchestrator.core.wire import (
    ACTIONS,
    action_from_dict,
    action_to_dict,
    load_from_dict,
    look_from_dict,
    look_to_dict,
    moved_from_dict,
    result_from_dict,
    result_to_dict,
    snapshot_digest,
    snapshot_from_dict,
    snapshot_to_dict,
    token_from_dict,
    token_to_dict,
    unless_known,
)
from orchestrator.store.snapshots import snapshot_text

SLOW_TO_DRAW = settings(
    max_examples=10, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow]
)  # on a busy machine a whole snapshot takes a second


@given(st.one_of([st.from_type(kind) for kind in ACTIONS.values()]))
def test_every_action_comes_back_as_it_was(action: HostAction) -> None:
    assert action_from_dict(json.loads(json.dumps(action_to_dict(action)))) == action


@SLOW_TO_DRAW
@given(st.from_type(HostSnapshot))
def test_every_snapshot_comes_back_as_it_was(snapshot: HostSnapshot) -> None:
    assert snapshot_from_dict(json.loads(json.dumps(snapshot_to_dict(snapshot)))) == snapshot


@SLOW_TO_DRAW
@given(st.from_type(HostSnapshot))
def test_the_digest_is_that_of_the_document_as_it_is_stored(snapshot: HostSnapshot) -> None:
    stored = snapshot_text(replace(snapshot, storage_free_bytes=0))
    assert snapshot_digest(snapshot) == sha256(stored.encode()).hexdigest()


def looked_at(snapshot: HostSnapshot, known: object) -> HostSnapshot | Unchanged:
    return look_from_dict(json.loads(json.dumps(look_to_dict(unless_known(snapshot, known)))))


@SLOW_TO_DRAW
@given(st.from_type(HostSnapshot), st.integers(min_value=0, max_value=2**62))
def test_a_look_brings_the_whole_snapshot_unless_the_host_is_as_known(snapshot: HostSnapshot, free: int) -> None:
    now = replace(snapshot, storage_free_bytes=free)
    assert looked_at(now, snapshot_digest(snapshot)) == Unchanged(storage_free_bytes=free)
    for known in (None, "", "0" * 64, 7):
        assert looked_at(snapshot, known) == snapshot


@given(st.from_type(FencingToken), st.from_type(ActionResult))
def test_tokens_and_results_come_back_as_they_were(token: FencingToken, result: ActionResult) -> None:
    assert token_from_dict(token_to_dict(token)) == token
    assert result_from_dict(result_to_dict(result)) == result


@given(st.from_type(MovedVm), st.from_type(MoveLoad))
def test_what_a_move_answers_comes_back_as_it_was(moved: MovedVm, load: MoveLoad) -> None:
    assert moved_from_dict(json.loads(json.dumps(asdict(moved)))) == moved
    assert load_from_dict(json.loads(json.dumps(asdict(load)))) == load


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({}, "agent.unknown_action"),
        ({"action": ["StartDomain"], "vm": "a"}, "agent.unknown_action"),
        ({"action": "FormatDisk"}, "agent.unknown_action"),
        ({"action": "StartDomain"}, "agent.request_invalid"),
        ({"action": "StartDomain", "vm": None}, "agent.request_invalid"),
        ({"action": "StartDomain", "vm": "a", "force": True}, "agent.request_invalid"),
        ({"action": "StopDomain", "vm": "a", "grace_seconds": "5"}, "agent.request_invalid"),
        ({"action": "StopDomain", "vm": "a", "grace_seconds": True}, "agent.request_invalid"),
        ({"action": "DeleteImage", "sha256": "00", "image_format": "vmdk"}, "agent.request_invalid"),
        ({"action": "ManageGpus", "gpus": "all"}, "agent.request_invalid"),
    ],
)
def test_a_malformed_action_is_refused(message: dict[str, object], code: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        action_from_dict(message)
    assert refused.value.code == code


@pytest.mark.parametrize("answer", [None, [], "x", {"changed": "no"}, {"message": "done"}])
def test_a_malformed_answer_is_unknown_never_a_result(answer: object) -> None:
    with pytest.raises(Unknown) as unknown:
        result_from_dict(answer)
    assert unknown.value.code == "agent.answer_invalid"


def test_an_answer_of_a_newer_agent_may_say_more_than_we_know() -> None:
    assert result_from_dict({"changed": True, "message": "", "took_ms": 4}) == ActionResult(changed=True)


@pytest.mark.parametrize("name", ["DefineDomain", "EnsureNetwork"])
def test_an_action_with_xml_in_it_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=name) as refused:
        action_from_dict({"action": name, "vm": "a", "name": "a", "xml": "<domain/>"})
    assert refused.value.code == "agent.xml_refused"
