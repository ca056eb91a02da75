# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import struct

from orchestrator.cli.guest_stream import accept_own, listen

RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def test_a_connection_that_is_reset_before_it_is_taken_ends_nothing() -> None:
    with listen(0) as listener:
        reset = socket.create_connection(listener.getsockname())
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        reset.close()
        with socket.create_connection(listener.getsockname()) as viewer, accept_own(listener) as taken:
            assert taken.getpeername() == viewer.getsockname()
