# SPDX-License-Identifier: Apache-2.0
"""A guest at the other end of a console. Behind ports there is none."""

from __future__ import annotations

import socket

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.snapshot import DomainSnapshot


def no_guest(domain: DomainSnapshot | None) -> Conflict:
    """``domain``: of the VM; it is called as core/vms/vm.py says, an adopted one as it was."""
    name = None if domain is None else domain.name.rpartition(".")[2]
    return Conflict(
        "vm.simulated",
        "a simulated VM has no guest that answers on a port",
        hint=None if name is None else f"only its console is there: 'vgpuctl console {name}'",
    )


class Echo:
    """Greets, sends back what it gets, and hangs up on Ctrl-D."""

    def __init__(self, greeting: bytes = b"") -> None:
        self._guest, self._ours = socket.socketpair()
        self._guest.setblocking(False)
        self.send(greeting)

    def fileno(self) -> int:
        return self._ours.fileno()

    def send(self, data: bytes, /) -> int:
        if data == b"\x04":
            self._guest.shutdown(socket.SHUT_WR)
            return 1
        try:
            return self._guest.send(data)
        except BlockingIOError:
            return 0

    def receive(self, size: int, /) -> bytes:
        return self._ours.recv(size)

    def close(self) -> None:
        self._guest.close()
        self._ours.close()
