# SPDX-License-Identifier: Apache-2.0
"""What another host's libvirt may ask while a VM comes from there. The messages are as libvirt 11.3 sent them."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import libvirt
import pytest

from orchestrator.agent.libvirt.migration import OWN_DISK, copied_disks
from orchestrator.agent.libvirt.migration_calls import MigrationCalls
from orchestrator.core.errors import Denied

REMOTE, KEEPALIVE = 0x20008086, 0x6B656570
OPEN, CLOSE, CREATE_XML, FEATURE, AUTH_LIST, PREPARE, FINISH = 1, 2, 10, 60, 66, 303, 306
OURS = "<domain><name>default.train</name></domain>"
URI = "unix:///run/libvirt/qemu/m.tunnelmigrate.dest.default.train"
DISKS = "unix:///run/libvirt/qemu/d.tunnelmigrate.dest.default.train"
FLAGS = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER | libvirt.VIR_MIGRATE_PAUSED
PERSIST = libvirt.VIR_MIGRATE_PERSIST_DEST


def message(procedure: int, body: bytes = b"", *, program: int = REMOTE, kind: int = 0) -> bytes:
    return struct.pack(">IIIIiIi", 28 + len(body), program, 1, procedure, kind, 7, 0) + body


def opaque(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def opened(name: str = "qemu:///system", flags: int = 0) -> bytes:
    return message(OPEN, struct.pack(">I", 1) + opaque(name.encode()) + struct.pack(">I", flags))


def parameters(*given: tuple[str, str | int], flags: int = FLAGS) -> bytes:
    body = struct.pack(">I", len(given))
    for name, value in given:
        body += opaque(name.encode())
        body += (
            struct.pack(">I", 7) + opaque(value.encode()) if isinstance(value, str) else struct.pack(">IQ", 4, value)
        )
    return body + opaque(b"<cookie/>") + struct.pack(">I", flags)


GIVEN: Final = (("destination_xml", OURS), ("migrate_uri", URI), ("disks_uri", DISKS))
MOVE = parameters(*GIVEN, ("bandwidth", 5))


def calls(seen: list[str]) -> MigrationCalls:
    def check(xml: str) -> None:
        seen.append(xml)
        if xml != OURS:
            raise Denied("vm.definition_foreign", "no")

    return MigrationCalls({"migrate_uri": URI, "disks_uri": DISKS, **OWN_DISK}, check)


def test_the_calls_of_a_move_pass_in_whatever_pieces_they_come() -> None:
    sent = b"".join(
        (opened(), message(FEATURE, b"\0\0\0\6"), message(PREPARE, MOVE),
         message(1, program=KEEPALIVE, kind=2), message(FINISH, MOVE + bytes(4)), message(CLOSE))
    )  # fmt: skip
    for size in (1, 7, 28, len(sent)):
        seen: list[str] = []
        asked = calls(seen)
        assert b"".join(asked.passed(sent[at : at + size]) for at in range(0, len(sent), size)) == sent
        assert seen == [OURS, OURS]


def test_its_own_disk_alone_is_copied_where_its_volumes_are_in_pools() -> None:
    sent = message(PREPARE, parameters(*GIVEN, ("migrate_disks", "vda")))
    assert calls([]).passed(sent) == sent


_DISK: Final = "<disk><source file='{}'/><target dev='{}'/>{}</disk>"
_OWN, _IN_POOL = "/var/lib/vgpuctl-agent/volumes/a.qcow2", "/var/lib/vgpuctl-agent/pools/fast/{}"
_SEED: Final = _DISK.format("/var/lib/vgpuctl-agent/seeds/a.iso", "sda", "<readonly/>")


@pytest.mark.parametrize(
    ("disks", "copied"),
    [
        ((_DISK.format(_OWN, "vda", ""),), None),
        ((_DISK.format(_IN_POOL.format("volumes/a"), "vda", ""),), ()),
        ((_DISK.format(_OWN, "vda", ""), _DISK.format(_IN_POOL.format("data/b"), "vdb", "")), ("vda",)),
    ],
    ids=["all on the host", "all in a pool", "a volume in a pool"],
)
def test_what_is_copied_of_a_vm_that_moves_is_on_its_hosts_own_disk(
    disks: tuple[str, ...], copied: tuple[str, ...] | None
) -> None:
    xml = f"<domain><devices>{''.join(disks)}{_SEED}</devices></domain>"
    assert copied_disks(xml, "/var/lib/vgpuctl-agent") == copied


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(message(CREATE_XML, opaque(b"<domain/>")), id="another call"),
        pytest.param(message(OPEN, program=0x20008087), id="QEMU's own program"),
        pytest.param(message(OPEN, kind=3), id="a stream"),
        pytest.param(opened("qemu+ext://x/system?command=/bin/true"), id="a program that is run"),
        pytest.param(opened("qemu:///system?socket=/x"), id="a driver elsewhere"),
        pytest.param(opened(""), id="any driver"),
        pytest.param(message(OPEN, bytes(8)), id="no name of a driver"),
        pytest.param(opened(flags=1), id="open with flags"),
        pytest.param(message(PREPARE, parameters(*GIVEN, ("destination_xml", "<domain/>"))), id="another definition"),
        pytest.param(message(PREPARE, parameters(*GIVEN, ("migrate_uri", "tcp:0.0.0.0:4444"))), id="another socket"),
        pytest.param(message(PREPARE, parameters(*GIVEN, ("destination_name", "other"))), id="another name"),
        pytest.param(message(PREPARE, parameters(*GIVEN, ("disks_port", 4444))), id="another port"),
        pytest.param(message(PREPARE, parameters(*GIVEN, ("migrate_disks", "vdb"))), id="a disk that is not its own"),
        pytest.param(message(PREPARE, parameters(*GIVEN[1:])), id="no definition"),
        pytest.param(message(PREPARE, parameters(GIVEN[0], GIVEN[2])), id="no socket for memory"),
        pytest.param(message(PREPARE, parameters(*GIVEN[:2])), id="no socket for disks"),
        pytest.param(message(PREPARE, parameters(*GIVEN, flags=FLAGS | PERSIST)), id="it stays"),
        pytest.param(message(PREPARE, parameters(*GIVEN, flags=0)), id="it runs at once"),
        pytest.param(message(FINISH, parameters(flags=0) + bytes(4)), id="it runs in the end"),
        pytest.param(message(PREPARE, MOVE[:-4]), id="no flags"),
        pytest.param(message(PREPARE, struct.pack(">I", 2**31)), id="a count that is none"),
        pytest.param(struct.pack(">I", 3) + bytes(25), id="too short"),
        pytest.param(struct.pack(">I", 2**30) + bytes(25), id="too long"),
    ],
)  # fmt: skip
def test_all_else_is_refused_and_nothing_of_it_passes(refused: bytes) -> None:
    with pytest.raises(Denied):
        calls([]).passed(refused)


def test_what_libvirts_own_client_opens_passes(tmp_path: Path) -> None:
    """By the address that the agent gives it; a libvirt that sends a VM connects by the same client."""
    path, heard = tmp_path / "l", list[bytes]()

    def serve() -> None:
        """No authentication, and yes to everything."""
        listener.settimeout(30)
        near, _ = listener.accept()
        with near, near.makefile("rb") as reader, suppress(OSError):
            asked = calls([])
            while size := int.from_bytes(head := reader.read(4), "big"):
                heard.append(asked.passed(head + reader.read(size - 4)))
                _, program, _, procedure, _, serial, _ = struct.unpack_from(">IIIIiIi", heard[-1])
                body = bytes(4) if procedure == AUTH_LIST else struct.pack(">I", 1) if procedure == FEATURE else b""
                near.sendall(struct.pack(">IIIIiIi", 28 + len(body), program, 1, procedure, 1, serial, 0) + body)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        connection = libvirt.openAuth(f"qemu+unix:///system?socket={path}", [[], None, None], 0)
        connection.close()
        thread.join(30)
    assert [struct.unpack_from(">IIII", one)[3] for one in heard if one].count(OPEN) == 1
