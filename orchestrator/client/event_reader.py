# SPDX-License-Identifier: Apache-2.0
"""Server-sent events of ``GET /v1/events``, out of the bytes of its answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from orchestrator.core.foreign_json import parse_json

MAX_EVENT_BYTES: Final = 1024 * 1024
"""Of one event that is not whole; the server's are some hundred bytes."""
_END: Final = b"\n\n"


class EventReader:
    """Of one answer. ``stream``: what its bytes come from."""

    def __init__(self, stream: Any, last_id: str | None) -> None:
        self.stream = stream
        self.last_id = last_id
        """Where to go on; None: the server has not said yet."""
        self.events: deque[Mapping[str, Any]] = deque()
        """Those that have come and nobody has taken."""
        self._rest = b""

    def feed(self, part: bytes) -> None:
        """More of the answer.

        :raises ValueError: it is no answer of a vgpuctl server
        """
        *blocks, self._rest = (self._rest + part).split(_END)
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError("an event has no end")
        for block in blocks:
            self._read(block.decode())

    def take(self) -> Mapping[str, Any]:
        """The oldest of them; whoever comes back after this begins behind it. One without a noun only says where."""
        event = self.events.popleft()
        self.last_id = event.get("id", self.last_id)
        return event

    def _read(self, block: str) -> None:
        lines = (line.partition(":") for line in block.split("\n") if not line.startswith(":"))
        fields = {name: value.removeprefix(" ") for name, _, value in lines}
        if "data" in fields:
            event = parse_json(fields["data"].encode())
            if not isinstance(event, dict) or not isinstance(event.get("noun"), str):
                raise ValueError("an event has no noun")
            self.events.append(event)
        elif "id" in fields:
            self.events.append({"id": fields["id"]})


def concerns(event: Mapping[str, Any], nouns: Collection[str], names: Collection[str]) -> bool:
    """Whether something may have changed for who shows these ``nouns``: of events, and ``step``, which are the steps of
    operations that ``operation`` has not. ``names``: only what has this name or id, is on this host or of that subject
    is shown; none: all."""
    if event["noun"] == "gap":
        return True
    noun = "step" if event["change"] == "step" else event["noun"]
    named = not names or not {event["name"], event["subject"], event["host"]}.isdisjoint(names)
    return named and noun in nouns


def nouns_asked(nouns: Iterable[str]) -> list[str]:
    """Those that the stream is asked for, by which :func:`concerns` can be answered."""
    return sorted({"operation" if noun == "step" else noun for noun in nouns})
