# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.services.audit import MOST, RefusalBound
from tests.fakes.tenancy import real_tenancy


@given(st.lists(st.floats(0, 30), max_size=200))
def test_every_refusal_is_written_down_or_counted_and_no_window_has_too_many(pauses: list[float]) -> None:
    bound, now, written, counted, unknown = RefusalBound(most=3, window_s=60), 0.0, [], 0, 0
    for pause in pauses:
        now += pause
        missed = bound.left_out("red", now)
        if missed is None:
            unknown += 1
        else:
            written.append(now)
            counted, unknown = counted + missed, unknown - missed
    assert len(written) + counted + unknown == len(pauses)
    assert unknown >= 0
    assert all(late - early >= 60 for early, late in zip(written, written[6:], strict=False))


def test_a_clock_that_jumps_back_begins_a_new_window() -> None:
    bound = RefusalBound(most=1, window_s=60)
    assert [bound.left_out("red", now) for now in (100.0, 101.0, 5.0, 6.0)] == [0, None, 1, None]


def test_askers_are_bounded_apart_and_what_is_owed_of_each_is_told_later() -> None:
    bound = RefusalBound(most=1, window_s=60)
    assert [bound.left_out(asker, 0.0) for asker in ("red", "red", "blue", "red")] == [0, None, 0, None]
    assert [bound.left_out(asker, 70.0) for asker in ("blue", "red", "green")] == [0, 2, 0]


@pytest.mark.parametrize("code", ["peer.denied", "request.no_such_path", "request.too_large", "any.other"])
def test_nobody_but_operators_can_fill_the_audit_by_refusals(tmp_path: Path, code: str) -> None:
    audit = real_tenancy(tmp_path).audit
    for subject, asker in (("stranger", "strangers"), ("member", "red"), ("operator", None)):
        for _ in range(MOST + 40):
            audit.refused("POST /v1/vms", subject, f"refused: {code}", asker=asker)
    subjects = [record.subject for record in audit.list(limit=1000)]
    assert [subjects.count(one) for one in ("stranger", "member", "operator")] == [MOST, MOST, MOST + 40]
