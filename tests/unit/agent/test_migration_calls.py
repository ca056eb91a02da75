# SPDX-License-Identifier: Apache-2.0
"""What another host's libvirt may ask while a VM comes from there. The messages are as libvirt 11.3 sent them."""

from __future__ import annotations

import struct

import libvirt
import pytest

from orchestrator.agent.libvirt.migration_calls import MigrationCalls
from orchestrator.core.errors import Denied

REMOTE, KEEPALIVE = 0x20008086, 0x6B656570
OPEN, CLOSE, CREATE_XML, FEATURE, PREPARE, FINISH = 1, 2, 10, 60, 303, 306
OURS = "<domain><name>default.train</name></domain>"
URI = "unix:///run/libvirt/qemu/m.tunnelmigrate.dest.default.train"


def message(procedure: int, body: bytes = b"", *, program: int = REMOTE, kind: int = 0) -> bytes:
    return struct.pack(">IIIIiIi", 28 + len(body), program, 1, procedure, kind, 7, 0) + body


def opaque(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def parameters(*given: tuple[str, str | int], flags: int = 0) -> bytes:
    body = struct.pack(">I", len(given))
    for name, value in given:
        body += opaque(name.encode())
        body += (
            struct.pack(">I", 7) + opaque(value.encode()) if isinstance(value, str) else struct.pack(">IQ", 4, value)
        )
    return body + opaque(b"<cookie/>") + struct.pack(">I", flags)


MOVE = parameters(("destination_xml", OURS), ("migrate_uri", URI), ("bandwidth", 5))


def calls(seen: list[str]) -> MigrationCalls:
    def check(xml: str) -> None:
        seen.append(xml)
        if xml != OURS:
            raise Denied("vm.definition_foreign", "no")

    return MigrationCalls({"migrate_uri": URI}, check)


def test_the_calls_of_a_move_pass_in_whatever_pieces_they_come() -> None:
    sent = b"".join(
        (message(OPEN, b"name"), message(FEATURE, b"\0\0\0\6"), message(PREPARE, MOVE),
         message(1, program=KEEPALIVE, kind=2), message(FINISH, MOVE + bytes(4)), message(CLOSE))
    )  # fmt: skip
    for size in (1, 7, 28, len(sent)):
        seen: list[str] = []
        asked = calls(seen)
        assert b"".join(asked.passed(sent[at : at + size]) for at in range(0, len(sent), size)) == sent
        assert seen == [OURS, OURS]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(message(CREATE_XML, opaque(b"<domain/>")), id="another call"),
        pytest.param(message(OPEN, program=0x20008087), id="QEMU's own program"),
        pytest.param(message(OPEN, kind=3), id="a stream"),
        pytest.param(message(PREPARE, parameters(("destination_xml", "<domain/>"))), id="another definition"),
        pytest.param(message(PREPARE, parameters(("migrate_uri", "tcp:0.0.0.0:4444"))), id="another socket"),
        pytest.param(message(PREPARE, parameters(("destination_name", "other"))), id="another name"),
        pytest.param(message(PREPARE, parameters(flags=libvirt.VIR_MIGRATE_PERSIST_DEST)), id="it stays"),
        pytest.param(message(PREPARE, MOVE[:-4]), id="no flags"),
        pytest.param(message(PREPARE, struct.pack(">I", 2**31)), id="a count that is none"),
        pytest.param(struct.pack(">I", 3) + bytes(25), id="too short"),
        pytest.param(struct.pack(">I", 2**30) + bytes(25), id="too long"),
    ],
)  # fmt: skip
def test_all_else_is_refused_and_nothing_of_it_passes(refused: bytes) -> None:
    with pytest.raises(Denied):
        calls([]).passed(refused)
