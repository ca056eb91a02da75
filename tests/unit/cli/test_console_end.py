# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.frames import Close

from orchestrator.cli.guest_stream import closed_by_vm
from orchestrator.core.errors import VgpuctlError


def closed(code: int | None, *, by_server: bool | None = True) -> ConnectionClosed:
    """With words of the server's that nobody should see."""
    received = None if code is None else Close(code, "\x1b[2J gone")
    sent = None if by_server is None else Close(1000, "")
    return ConnectionClosedError(received, sent, by_server if received and sent else None)


def test_who_leaves_is_told_nothing_and_the_end_of_the_vm_is_no_error() -> None:
    assert not closed_by_vm(closed(1000, by_server=False))
    assert not closed_by_vm(closed(None, by_server=False))
    assert closed_by_vm(closed(1000))


@pytest.mark.parametrize(
    ("code", "error", "exit_code"),
    [
        (1012, "stream.server_stopped", 9), (1001, "stream.server_stopped", 9), (1008, "stream.no_longer_allowed", 6),
        (1011, "stream.cut", 9), (1006, "stream.cut", 9),
    ],
)  # fmt: skip
def test_what_the_server_ends_says_why_in_our_words(code: int, error: str, exit_code: int) -> None:
    with pytest.raises(VgpuctlError) as raised:
        closed_by_vm(closed(code))
    assert (raised.value.code, raised.value.exit_code) == (error, exit_code)
    assert "gone" not in str(raised.value) + str(raised.value.details)


def test_a_connection_that_is_cut_is_no_end() -> None:
    with pytest.raises(VgpuctlError, match="the connection was cut"):
        closed_by_vm(closed(None, by_server=None))
