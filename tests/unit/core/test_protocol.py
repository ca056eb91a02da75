# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import Unknown
from orchestrator.core.protocol import REQUEST_BYTES, encode_frame, read_frame

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_numbers = st.integers(-(2**63), 2**63 - 1)
_messages = st.dictionaries(_texts, st.none() | _numbers | _texts | st.lists(_texts), max_size=4)


class Trickle(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(3, size) if size and size > 0 else size)


@given(st.lists(_messages, max_size=4))
def test_frames_read_back_in_order_however_the_bytes_arrive(messages: list[dict[str, object]]) -> None:
    source = Trickle(b"".join(encode_frame(m) for m in messages))
    assert [read_frame(source) for _ in messages] == messages
    assert read_frame(source) is None


@pytest.mark.fault("F106")
@given(_messages, st.data())
def test_a_frame_cut_anywhere_is_unknown_and_never_a_result(message: dict[str, object], data: st.DataObject) -> None:
    frame = encode_frame(message)
    cut = data.draw(st.integers(min_value=1, max_value=len(frame) - 1))
    with pytest.raises(Unknown) as caught:
        read_frame(io.BytesIO(frame[:cut]))
    assert caught.value.code == "agent.channel_cut"


@pytest.mark.fault("F106")
@pytest.mark.parametrize(
    "noise",
    [
        b"Welcome to Debian GNU/Linux 13\n",
        (REQUEST_BYTES + 1).to_bytes(4, "big") + b"{}",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x01{",
        b"\x00\x00\x00\x02\xff\xfe",
    ],
)
def test_noise_on_the_stream_is_unknown_and_never_a_result(noise: bytes) -> None:
    with pytest.raises(Unknown):
        read_frame(io.BytesIO(noise))


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text()), max_size=4))
def test_text_that_no_frame_may_hold_costs_nobody_the_rest_of_the_message(message: dict[str, object]) -> None:
    sent = read_frame(io.BytesIO(encode_frame({**message, "more": "kept \ud800 \0 \\u0000"})))
    assert sent is not None
    assert sent["more"] == "kept ? ? \\u0000"
