# SPDX-License-Identifier: Apache-2.0
"""A thousand SSH connections to agents, all open at once: what they cost here and how long a look at a host takes."""

from __future__ import annotations

import getpass
import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from orchestrator.adapters.agent_link.link import SshHostLink
from orchestrator.core.hosts.host import Host, new_host
from tests.bench.control_plane.local_ssh import SITE, LocalSsh, local_ssh
from tests.bench.control_plane.memory import memory_mib
from tests.bench.placement.rows import Row, rows_of

CONNECTIONS = int(os.environ.get("VGPUCTL_BENCH_CONNECTIONS", "1000"))
PER_AGENT = 100
"""An agent serves 128 connections at most; a real one has a few."""
AT_ONCE = 16
ROUNDS = 3


def suite() -> Iterator[Row]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with local_ssh(-(-CONNECTIONS // PER_AGENT)) as ssh:
        values = _measured(ssh)
    yield from rows_of("ssh", f"{CONNECTIONS} connections", f"{AT_ONCE} looks at once", values)


def _measured(ssh: LocalSsh) -> dict[str, float]:
    link = SshHostLink(site=SITE, key_file=ssh.key_file, user=getpass.getuser())
    hosts = [_host(ssh, number) for number in range(CONNECTIONS)]
    link.observe(hosts[0])  # what the first one loads is no cost of a connection
    threads, memory = threading.active_count(), memory_mib()
    began = time.perf_counter()
    _looks(link.observe, hosts[1:])
    connected = time.perf_counter() - began
    values = {
        "connect_s": connected,
        "threads": float(threading.active_count() - threads),
        "memory_mib": memory_mib() - memory,
    }
    seconds = [one for _ in range(ROUNDS) for one in _looks(link.observe, hosts)]
    values["observe_p50_ms"] = statistics.median(seconds) * 1000
    values["observe_p99_ms"] = statistics.quantiles(seconds, n=100)[98] * 1000
    values["observes_per_s"] = AT_ONCE / statistics.mean(seconds)
    link.close()
    return values


def _looks(observe: Callable[[Host], object], hosts: Sequence[Host]) -> list[float]:
    """Seconds that each took."""

    def timed(host: Host) -> float:
        began = time.perf_counter()
        observe(host)
        return time.perf_counter() - began

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(timed, hosts))


def _host(ssh: LocalSsh, number: int) -> Host:
    port = ssh.ports[number % len(ssh.ports)]
    host = new_host(f"h{number}", "127.0.0.1", port, provisioning_user="root", host_key=ssh.host_key)
    return replace(host, state="ready")
