# SPDX-License-Identifier: Apache-2.0
"""A real sshd on loopback whose forced command is the relay to agents of ours, all in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from orchestrator.agent.assembly import Config, assemble
from orchestrator.agent.server import Server
from orchestrator.agent.timing import RealTiming

SITE = "bench"
_SSHD = "/usr/sbin/sshd"
_RUN = Path("/run/sshd")
"""sshd's own empty directory; its init script makes it."""
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class LocalSsh:
    """``ports``: each leads to an agent of its own."""

    ports: tuple[int, ...]
    host_key: str
    key_file: Path


@contextmanager
def local_ssh(agents: int) -> Iterator[LocalSsh]:
    """Runs until the end of the block, and not longer than this process."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        host_key, client_key = directory / "host_key", directory / "client_key"
        pinned, allowed = _new_key(host_key), _new_key(client_key)
        (directory / "authorized_keys").write_text(f"restrict {allowed}\n")
        ports = _free_ports(agents)
        ready = multiprocessing.get_context("spawn").Event()
        serving = multiprocessing.get_context("spawn").Process(target=_agents, args=(directory, ports, ready))
        serving.daemon = True
        serving.start()
        assert ready.wait(60), "the agents did not start"
        _RUN.mkdir(mode=0o755, exist_ok=True)
        (directory / "config").write_text(_config(directory, ports))
        server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", _SSHD, "-D", "-e", "-f", directory / "config"],
            stderr=(directory / "log").open("wb"),
        )
        try:
            _wait_for(ports, server, directory / "log")
            yield LocalSsh(ports, pinned, client_key)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
            serving.terminate()
            serving.join()


def _new_key(file: Path) -> str:
    """Writes the private key; the public one as a line of OpenSSH."""
    key = Ed25519PrivateKey.generate()
    file.touch(mode=0o600)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _free_ports(number: int) -> tuple[int, ...]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = tuple(int(one.getsockname()[1]) for one in sockets)
    for one in sockets:
        one.close()
    return ports


def _config(directory: Path, ports: tuple[int, ...]) -> str:
    relay = f"PYTHONPATH={_ROOT} exec {sys.executable} -m orchestrator.agent relay"
    lines = [f"ListenAddress 127.0.0.1:{port}" for port in ports]
    lines += [
        f"HostKey {directory / 'host_key'}",
        f"AuthorizedKeysFile {directory / 'authorized_keys'}",
        f'ForceCommand set -- $SSH_CONNECTION; {relay} "{directory}/$4.sock"',
        "PidFile none",
        "StrictModes no",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "UsePAM no",
        "UseDNS no",
        "LoginGraceTime 0",
        "MaxStartups 4096",
    ]
    return "\n".join(lines) + "\n"


def _agents(directory: Path, ports: tuple[int, ...], ready: threading.Event) -> None:
    """Each sees an empty machine and libvirt's test driver."""
    for port in ports:
        root = directory / f"machine-{port}"
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
        config = Config(site=SITE, epoch=1, storage=root / "storage")
        agent = assemble(config, root=root, libvirt_uri="test:///default", timing=RealTiming())
        server = Server(agent, directory / f"{port}.sock")
        threading.Thread(target=server.serve_forever, daemon=True).start()
    ready.set()
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)


def _wait_for(ports: tuple[int, ...], server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            for port in ports:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()  # noqa: PT018 - one reason
            time.sleep(0.05)
