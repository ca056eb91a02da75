# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import dataclasses
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from orchestrator.adapters.agent_link import ssh
from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.core.actions.host_actions import FencingToken, WriteSeed
from orchestrator.core.errors import Retryable, Unknown, WorldError
from orchestrator.core.hosts.host import Host
from tests.contract.agent_over_ssh import SITE, Chain
from tests.fakes.relay import Relay

VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
SEED = WriteSeed(vm=VM, seed="a.iso", iso_base64=base64.b64encode(b"seed").decode())
TOKEN = FencingToken(site=SITE, epoch=1, operation="op", attempt=1)


@pytest.fixture
def relay(way: Chain) -> Iterator[Relay]:
    listener = socket.create_server(("127.0.0.1", 0))
    made = Relay(listener, partial(socket.create_connection, ("127.0.0.1", way.ssh.port)))
    yield made
    made.close()


@pytest.fixture
def host(way: Chain, relay: Relay) -> Host:
    """Reached through the relay, under the key that is pinned for it."""
    return dataclasses.replace(way.host, port=relay.port)


@pytest.mark.fault("F106")
@pytest.mark.parametrize("bytes_back", [1, 5, 30, 60, 90])
def test_a_connection_that_ends_in_the_middle_of_an_answer_is_no_result(
    link: SshHostLink, relay: Relay, host: Host, bytes_back: int
) -> None:
    link.observe(host)
    relay.cut_after = bytes_back
    with pytest.raises(Unknown):
        link.perform(host, SEED, TOKEN)
    relay.cut_after = None
    assert [one.name for one in link.observe(host).seeds] in ([], ["a.iso"])
    link.perform(host, SEED, TOKEN)
    assert [one.name for one in link.observe(host).seeds] == ["a.iso"]


@pytest.mark.fault("F107")
def test_what_comes_back_late_is_a_result_all_the_same(link: SshHostLink, relay: Relay, host: Host) -> None:
    relay.delay_s = 0.2
    assert link.observe(host).boot_id == "boot-1"
    assert link.perform(host, SEED, TOKEN).changed
    assert not link.perform(host, SEED, TOKEN).changed


@pytest.mark.fault("F107")
def test_answers_that_are_lost_one_way_leave_the_effect_unknown_until_the_host_is_read(
    link: SshHostLink, relay: Relay, host: Host
) -> None:
    """What is asked still arrives; nothing comes back until somebody ends the connection."""
    link.observe(host)
    relay.lost = True
    relay.cut_in(1.0)
    with pytest.raises(Unknown):
        link.perform(host, SEED, TOKEN)
    relay.lost = False
    assert [one.name for one in link.observe(host).seeds] == ["a.iso"]
    assert not link.perform(host, SEED, TOKEN).changed


@pytest.mark.fault("F107")
def test_a_host_of_which_nothing_comes_back_is_unreachable_within_its_bound(
    link: SshHostLink, relay: Relay, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "HANDSHAKE_SECONDS", 1)
    relay.lost = True
    with pytest.raises(WorldError) as away:
        link.observe(host)
    assert isinstance(away.value, Retryable)
    assert away.value.code == "host.unreachable"
