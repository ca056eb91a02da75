# SPDX-License-Identifier: Apache-2.0
"""Events out of the bytes of an answer, however they are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.client.event_reader import MAX_EVENT_BYTES, EventReader

STREAM = (
    b'id: 1\n\n: alive\n\nid: 2\nevent: vm\ndata: {"noun":"vm","id":"2"}\n\n'
    b'event: gap\ndata: {"noun":"gap","reason":"slow"}\n\nid: 3\nevent: vm\ndata: {"noun":"vm","id":"3"}\n\n'
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_events_are_the_same_however_the_bytes_come(cuts: list[int]) -> None:
    reader = EventReader(None, None)
    ends = [0, *sorted(cuts), len(STREAM)]
    for begin, end in pairwise(ends):
        reader.feed(STREAM[begin:end])
    told = []
    while reader.events:
        event = reader.take()
        told.append((event.get("noun"), reader.last_id))
    assert told == [(None, "1"), ("vm", "2"), ("gap", "2"), ("vm", "3")]


@pytest.mark.parametrize(
    "bad",
    [b"data: {\n\n", b"data: []\n\n", b'data: {"noun": 1}\n\n', b"data: " + b"[" * 100_000 + b"\n\n", b"id: \xff\n\n",
     b"x" * (MAX_EVENT_BYTES + 1)],
)  # fmt: skip
def test_what_is_no_stream_of_events_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        EventReader(None, None).feed(bad)
