# SPDX-License-Identifier: Apache-2.0
"""A running VM that goes from one agent to the other: both are asked, and whichever refuses is named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from typing import Final

from orchestrator.adapters.agent_link.conversation import Conversation, Message
from orchestrator.adapters.agent_link.move_key import new_move_key
from orchestrator.core.actions.host_actions import FencingToken
from orchestrator.core.actions.live_move import LiveMove, MovedVm
from orchestrator.core.errors import Unknown, WorldError, naming
from orchestrator.core.hosts.host import Host
from orchestrator.core.wire import moved_from_dict, token_to_dict

SILENT_S: Final = 120.0
"""An agent that a running VM leaves tells how far it is four times a second."""
_REFUSAL_S: Final = 10.0

End = tuple[Host, FencingToken]
Open = Callable[[Host, str, Message], AbstractContextManager[tuple[Conversation, Message]]]


def move(stream: Open, source: End, target: End, wanted: LiveMove, progress: Callable[[int, int], None]) -> MovedVm:
    """See HostLink.move_vm. ``stream``: opens one of that kind at a host."""
    near, far = new_move_key(), new_move_key()
    coming: Message = {
        "vm": wanted.vm, "token": token_to_dict(target[1]), **asdict(far), "other": near.certificate
    }  # fmt: skip
    with naming(target[0].name), stream(target[0], "move_in", coming) as (taker, hello):
        leaving: Message = {
            "vm": wanted.vm, "token": token_to_dict(source[1]), **asdict(near), "other": far.certificate,
            "devices": list(wanted.devices), "max_bytes_per_s": wanted.max_bytes_per_s or 0,
            "max_pause_ms": wanted.max_pause_ms or 0,
            "ends": hello.get("ends"), "storage": hello.get("storage"),
        }  # fmt: skip
        try:
            with naming(source[0].name), stream(source[0], "move_out", leaving) as (giver, _):
                return _left(giver, progress)
        except WorldError:
            _raise_refusal(taker)
            raise


def _left(giver: Conversation, progress: Callable[[int, int], None]) -> MovedVm:
    def reached(message: Message) -> None:
        done, left = message.get("done"), message.get("left")
        if isinstance(done, int) and isinstance(left, int):
            progress(done, left)

    return moved_from_dict(giver.receive_result(SILENT_S, reached))


def _raise_refusal(taker: Conversation) -> None:
    """What the agent that the VM was to come to has refused: the other one only saw its connection end."""
    taker.end_sending()
    with suppress(Unknown):
        taker.receive_result(_REFUSAL_S)
