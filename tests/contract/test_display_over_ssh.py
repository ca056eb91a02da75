# SPDX-License-Identifier: Apache-2.0
"""A VM's display over the whole way to its agent. Its QEMU is a socket with an RFB server at the other end."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import cast

import pytest

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.agent import session
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domains import domain_key
from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.sim.screen import Screen
from tests.contract.agent_over_ssh import Chain
from tests.fakes.rfb import Viewer
from tests.unit.agent.test_displays import SPICE, VNC, QemuWithScreens, domain

VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"


def qemu_of(way: Chain, *graphics: str) -> QemuWithScreens:
    """From now on the agent's libvirt has this domain alone."""
    qemu = QemuWithScreens(domain(*graphics))
    way.server._agent = replace(way.agent, libvirt=cast(Libvirt, qemu))
    way.agent.ledger.claim(domain_key(VM), VM)
    return qemu


def carry(qemu: QemuWithScreens, screen: Screen) -> None:
    """Between the descriptor that libvirt passes and a simulated screen, both ways."""

    def out() -> None:
        while data := screen.receive(65536):
            qemu.far.sendall(data)

    def back() -> None:
        while data := qemu.far.recv(65536):
            screen.send(data)

    for direction in (out, back):
        threading.Thread(target=direction, daemon=True).start()


def test_a_viewer_gets_a_whole_picture_from_the_qemu_of_its_vm(way: Chain, link: SshHostLink) -> None:
    qemu = qemu_of(way, VNC)
    carry(qemu, Screen("train"))
    stream = link.open_display(way.host, VM)
    viewer = Viewer(stream.send, stream.receive)
    viewer.greet()
    assert set(viewer.picture().pixels) == {0x20}
    stream.close()


def test_the_end_of_the_qemu_ends_the_stream(way: Chain, link: SshHostLink) -> None:
    qemu = qemu_of(way, VNC)
    stream = link.open_display(way.host, VM)
    qemu.far.close()
    assert stream.receive(100) == b""
    stream.close()


def test_a_display_needs_a_vm_of_ours_that_has_one(way: Chain, link: SshHostLink) -> None:
    with pytest.raises(Conflict) as foreign:
        link.open_display(way.host, VM)
    qemu_of(way, SPICE)
    with pytest.raises(Conflict) as screenless:
        link.open_display(way.host, VM)
    assert (foreign.value.code, screenless.value.code) == ("vm.foreign_domain", "vm.no_display")


def test_an_agent_from_before_displays_is_told_to_be_too_old(
    way: Chain, link: SshHostLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(_session: object, hello: dict[str, object], _place: object) -> None:
        raise InvalidInput("agent.request_invalid", f"there is no stream kind {hello['kind']!r}")

    monkeypatch.setattr(session.AgentSession, "_serve", serve)
    with pytest.raises(Fatal) as refused:
        link.open_display(way.host, VM)
    assert refused.value.code == "agent.too_old"
    assert refused.value.hint is not None
    assert f"upgrade-agent {way.host.name}'" in refused.value.hint
