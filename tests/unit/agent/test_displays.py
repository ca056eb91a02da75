# SPDX-License-Identifier: Apache-2.0
"""A VM's screen: nothing of the host listens for it, and libvirt opens it for the agent alone."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

import libvirt
import pytest

from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.displays import open_display
from orchestrator.core.domain_xml.display import display, is_own_graphics, vnc_index
from orchestrator.core.errors import Conflict, Fatal
from tests.unit.agent.bench import Bench

T = TypeVar("T")


class QemuWithScreens:
    """In the place of libvirt's connection and of the one domain on it."""

    def __init__(self, xml: str) -> None:
        self.xml = xml
        self.opened: list[tuple[int, int]] = []
        self.far, self._near = socket.socketpair()

    def call(self, function: Callable[[Any], T], **_: object) -> T:
        return function(self)

    def lookupByUUIDString(self, _uuid: str) -> QemuWithScreens:  # noqa: N802 - libvirt's name
        return self

    def XMLDesc(self) -> str:  # noqa: N802 - libvirt's name
        return self.xml

    def openGraphicsFD(self, index: int, flags: int) -> int:  # noqa: N802 - libvirt's name
        self.opened.append((index, flags))
        return self._near.detach()


def domain(*graphics: str) -> str:
    return f"<domain><devices>{''.join(graphics)}</devices></domain>"


SPICE, VNC = "<graphics type='spice'/>", "<graphics type='vnc'><listen type='none'/></graphics>"


def test_the_first_vnc_screen_is_opened_as_libvirt_counts_them_and_without_a_password() -> None:
    qemu: Any = QemuWithScreens(domain(SPICE, VNC))
    with open_display(qemu, "vm") as screen, qemu.far:
        qemu.far.sendall(b"RFB")
        assert screen.recv(10) == b"RFB"
    assert qemu.opened == [(1, libvirt.VIR_DOMAIN_OPEN_GRAPHICS_SKIPAUTH)]


def test_a_domain_without_a_vnc_screen_says_so() -> None:
    qemu: Any = QemuWithScreens(domain(SPICE))
    with pytest.raises(Conflict) as refused:
        open_display(qemu, "vm")
    assert refused.value.code == "vm.no_display"
    assert qemu.opened == []


def test_what_libvirt_refuses_is_told_in_our_words(furnished: Bench) -> None:
    furnished.define(more=VNC)
    with pytest.raises(Fatal) as refused:  # libvirt's test driver passes no descriptors
        open_display(Libvirt("test:///default"), furnished.vm)
    assert refused.value.code == "display.refused"


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_the_screen_that_we_write_is_known_as_ours_also_when_libvirt_has_kept_it(firmware: Any) -> None:
    graphics, *_ = display(firmware)
    assert is_own_graphics(graphics)
    assert vnc_index(domain(ET.tostring(graphics, encoding="unicode"))) == 0


@pytest.mark.parametrize(
    "graphics",
    [
        "<graphics type='vnc'/>",
        "<graphics type='vnc' port='5900'><listen type='none'/></graphics>",
        "<graphics type='vnc' passwd='x'><listen type='none'/></graphics>",
        "<graphics type='vnc' websocket='5700'><listen type='none'/></graphics>",
        "<graphics type='vnc'><listen type='address' address='0.0.0.0'/></graphics>",
        "<graphics type='vnc'><listen type='none'/><listen type='address' address='::'/></graphics>",
        "<graphics type='vnc'><listen type='socket' socket='/tmp/x'/></graphics>",
        "<graphics type='vnc' socket='/tmp/x'/>",
        "<graphics type='spice'><listen type='none'/></graphics>",
        "<graphics type='egl-headless'><gl rendernode='/dev/dri/renderD128'/></graphics>",
    ],
)
def test_a_screen_that_others_could_reach_is_none_of_ours(graphics: str) -> None:
    assert not is_own_graphics(ET.fromstring(graphics))
