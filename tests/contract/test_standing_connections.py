# SPDX-License-Identifier: Apache-2.0
"""Connections to hosts that stand: who hears that one is lost, and how many there are."""

from __future__ import annotations

import queue
import socket
from dataclasses import replace

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.adapters.agent_link.ssh import StandingTransport
from tests.contract.agent_over_ssh import SITE, Chain

LIMIT_S = 60.0
NOTICED_S = 15


def test_whoever_asked_is_told_which_host_was_lost_and_not_of_one_that_was_left(way: Chain) -> None:
    lost: queue.SimpleQueue[str] = queue.SimpleQueue()
    link = SshHostLink(site=SITE, key_file=way.key_file)
    link.when_lost(lost.put)
    link.observe(replace(way.host, name="left"))
    link.observe(way.host)
    link.forget(replace(way.host, name="left"))
    way.ssh.cut()
    assert lost.get(timeout=LIMIT_S) == way.host.name
    link.close()
    assert lost.empty()


def test_the_kernel_notices_within_fifteen_seconds_that_nothing_comes_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connection = socket.create_connection(listening.getsockname())
        transport = StandingTransport(connection)
        transport.stand(lambda: None)
        idle, between, times = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle + between * times <= NOTICED_S, "while nobody asks it anything"
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= NOTICED_S * 1000, (
            "while somebody does"
        )
        transport.close()
        connection.close()


def test_beyond_the_bound_the_longest_unused_connection_is_closed(way: Chain) -> None:
    link = SshHostLink(site=SITE, key_file=way.key_file, most=2)
    one, two, three = (replace(way.host, name=name) for name in ("one", "two", "three"))
    for host in (one, two, one, three):
        link.observe(host)
    assert way.ssh.relays == 3
    link.observe(one)
    assert way.ssh.relays == 3
    link.observe(two)
    assert way.ssh.relays == 4
    link.close()
