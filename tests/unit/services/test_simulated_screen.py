# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from orchestrator.sim.screen import HEIGHT, MAX_UNREAD, WIDTH, Screen
from tests.fakes.rfb import PRESSED_A, Viewer


def test_a_viewer_sees_a_picture_of_one_colour_and_another_after_a_key() -> None:
    screen = Screen("train")
    viewer = Viewer(screen.send, screen.receive)
    viewer.greet()
    before = viewer.picture()
    screen.send(PRESSED_A)
    after = viewer.picture(incremental=True)
    screen.close()
    assert (before.name, before.width, before.height, len(before.pixels)) == (
        "train",
        WIDTH,
        HEIGHT,
        4 * WIDTH * HEIGHT,
    )
    assert len(set(before.pixels)) == len(set(after.pixels)) == 1
    assert before.pixels != after.pixels


def test_messages_may_come_in_any_pieces() -> None:
    screen, said = Screen("train"), bytearray()
    viewer = Viewer(said.extend, screen.receive)

    def letter_by_letter(data: bytes) -> None:
        for number in range(len(data)):
            screen.send(data[number : number + 1])

    viewer.send = letter_by_letter
    viewer.greet()
    letter_by_letter(b"\x06\0\0\0\0\0\0\x03abc" + b"\x05\0\0\0\0\0")
    assert viewer.picture().pixels
    screen.close()


def test_one_who_asks_for_pictures_and_reads_none_is_given_no_more() -> None:
    screen = Screen("train")
    viewer = Viewer(screen.send, screen.receive)
    viewer.greet()
    asks = b"\x03\0" + bytes(8)
    taken = [screen.send(asks) for _ in range(3 * MAX_UNREAD // (4 * WIDTH * HEIGHT))]
    screen.close()
    assert taken[0] == len(asks)
    assert taken[-1] == 0


def test_one_who_speaks_no_rfb_is_hung_up_on() -> None:
    screen = Screen("train")
    Viewer(screen.send, screen.receive).greet()
    with pytest.raises(BrokenPipeError):
        screen.send(b"\xffGET / HTTP/1.1\r\n")
    assert screen.receive(100) == b""
    screen.close()
