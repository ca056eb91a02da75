# SPDX-License-Identifier: Apache-2.0
"""Implements ports/overlay.Tracer: ovn-trace(8), as a process that reads the southbound database."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Final

from orchestrator.adapters.ovn.ovsdb import unreachable
from orchestrator.core.errors import Conflict, Retryable

_LIMIT_S: Final = 30.0
_AT_ONCE: Final = 2
"""Each reads the whole southbound."""
_PROGRAM: Final = "ovn-trace"
_WORDS: Final = ("--no-friendly-names", *("--ct=new",) * 4)
"""Ports by their whole names; of a connection that nothing has seen yet, each time it is tracked."""


@dataclass(frozen=True, kw_only=True)
class OvnTracer:
    """``southbound``: of its servers; ``keys``: words for a program of OVN: whom to believe, and what to show."""

    southbound: Sequence[str]
    keys: Callable[[], Sequence[str]]
    _places: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(_AT_ONCE))

    def trace(self, switch: str, packet: str) -> str:
        """See :class:`orchestrator.ports.overlay.Tracer`."""
        if not self._places.acquire(blocking=False):
            hint = f"try again within {_LIMIT_S:.0f} s"
            raise Retryable("ovn.busy", f"OVN is being asked about {_AT_ONCE} other packets", hint=hint)
        try:
            return self._traced(switch, packet)
        finally:
            self._places.release()

    def _traced(self, switch: str, packet: str) -> str:
        words = [_PROGRAM, f"--db={','.join(self.southbound)}", *self.keys(), *_WORDS]
        try:
            done = subprocess.run(
                [*words, switch, packet],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
            )
        except FileNotFoundError:
            hint = "an operator installs it beside the server: apt install ovn-common"
            raise Conflict("ovn.no_trace", f"{_PROGRAM} is not on the server's machine", hint=hint) from None
        except subprocess.TimeoutExpired as error:
            raise unreachable(f"{_PROGRAM} has not ended within {_LIMIT_S:.0f} s") from error
        if done.returncode != 0 or "ingress(" not in done.stdout:  # of a switch that it does not know it says 0
            raise unreachable(f"{_PROGRAM} failed", done.stderr.strip()[-2000:])
        return done.stdout
