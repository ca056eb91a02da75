# SPDX-License-Identifier: Apache-2.0
"""The screen of a running VM, through server, SSH, agent, libvirt and QEMU: what its firmware or guest shows there."""

from __future__ import annotations

import socket
import time

import pytest

from tests.fakes.rfb import Viewer
from tests.lab.enrolled import Enrolled

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

DRAWN_S = 120
"""Under emulation the firmware takes a while until it writes its first line."""


def colours_drawn(line: str) -> set[bytes]:
    """Those of the first picture that is not one colour alone, as the viewer sees it whose command line this is."""
    port = int(line.rstrip().removeprefix("vncviewer 127.0.0.1::"))
    with socket.create_connection(("127.0.0.1", port), timeout=DRAWN_S) as connection:
        viewer = Viewer(connection.sendall, connection.recv)
        viewer.greet()
        deadline = time.monotonic() + DRAWN_S
        while True:
            pixels = viewer.picture().pixels
            colours = {pixels[at : at + 3] for at in range(0, len(pixels), 4)}
            if len(colours) > 1:
                return colours
            assert time.monotonic() < deadline, f"{viewer.size} and one colour"
            time.sleep(1)


def test_a_running_vm_shows_its_screen_and_nothing_listens_for_it(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("seen", "--ssh-key", enrolled.public_key))
    with product.start("vnc", "seen") as command:
        assert command.stdout is not None
        line = command.stdout.readline()
        assert len(colours_drawn(line)) > 1
        listening = enrolled.shell("ss -Hltnxp").splitlines()
        assert [row for row in listening if "qemu" in row and "monitor.sock" not in row] == []
        command.terminate()
    assert enrolled.is_confined("seen")
    assert product.json("doctor") == []
    product.ok("stop-vm", "seen", "--force")
    assert "vm.not_running" in product.refused(5, "vnc", "seen").err
    product.ok("delete-vm", "seen", "--yes")
