# SPDX-License-Identifier: Apache-2.0
"""The whole way from the controller to the agent on loopback: SSH server, relay process, unix socket, agent."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import asyncssh

from orchestrator.agent.assembly import Agent, Config, assemble
from orchestrator.agent.server import Server
from orchestrator.agent.timing import RealTiming
from orchestrator.core.hosts.host import Host
from tests.fakes.loopback_guest import ended

SITE = "site-1"
USER = "vgpuctl-agent"


@dataclass
class SshServer:
    """``relays``: how many forced commands were started. ``agent``: what of Python's command line is the agent's
    program. Runs in a thread of its own."""

    directory: Path
    socket_path: Path
    host_key: asyncssh.SSHKey
    client_key: asyncssh.SSHKey
    relays: int = 0
    port: int = 0
    agent: tuple[str, ...] = ("-m", "orchestrator.agent")
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)

    def stop(self) -> None:
        self.cut()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _end(self) -> None:
        """Nothing may be left half-awaited: the interpreter would complain wherever it next collects garbage."""
        self._listener.close()
        await self._listener.wait_closed()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.wait(others, timeout=10) if others else None
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def cut(self) -> None:
        """Every connection breaks at once."""

        async def abort() -> None:
            for connection in self._connections:
                connection.abort()
            self._connections.clear()

        asyncio.run_coroutine_threadsafe(abort(), self._loop).result(30)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    async def _listen(self) -> None:
        authorized = self.directory / "authorized_keys"
        authorized.write_bytes(self.client_key.export_public_key())
        self._listener = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[self.host_key],
            authorized_client_keys=str(authorized),
            process_factory=self._run_relay,
            acceptor=self._connections.append,
            encoding=None,
        )
        self.port = self._listener.get_port()

    async def _run_relay(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        self.relays += 1
        environment = {**os.environ, "SSH_ORIGINAL_COMMAND": process.command or ""}
        relay = await asyncio.create_subprocess_exec(
            *(sys.executable, *self.agent, "relay", str(self.socket_path)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        assert relay.stdin is not None
        assert relay.stdout is not None
        assert relay.stderr is not None
        to_relay = asyncio.create_task(_pump(process.stdin, relay.stdin))
        try:
            await asyncio.gather(_pump(relay.stdout, process.stdout), _pump(relay.stderr, process.stderr))
            process.exit(await relay.wait())
        finally:
            to_relay.cancel()
            await ended(relay)


class _Reader(Protocol):
    async def read(self, size: int, /) -> bytes: ...


class _Writer(Protocol):
    def write(self, data: bytes, /) -> object: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


async def _pump(source: _Reader, sink: _Writer) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.write_eof()
    except (OSError, asyncssh.Error):
        return  # one side was cut: so is the other
    finally:
        if isinstance(sink, asyncio.StreamWriter):
            sink.close()


@dataclass
class Way:
    """To whatever agent listens on the socket."""

    ssh: SshServer
    host: Host
    key_file: Path


@contextmanager
def way_to(directory: Path, socket_path: Path, key_file: Path | None = None) -> Iterator[Way]:
    """Through an SSH server of its own. ``key_file``: a controller's that has one."""
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    if key_file is None:
        key_file = directory / "agent_key"
        key_file.write_bytes(client_key.export_private_key())
    else:
        client_key = asyncssh.read_private_key(key_file)
    ssh = SshServer(directory, socket_path, host_key, client_key)
    ssh.start()
    host = Host(
        name="h1", address="127.0.0.1", port=ssh.port, provisioning_user="root",
        host_key=" ".join(host_key.export_public_key().decode().split()[:2]), state="ready", state_reason=None,
        cordoned=False, machine_id=None, epoch=1, managed_gpus=(), last_seen_at=None,
    )  # fmt: skip
    try:
        yield Way(ssh, host, key_file)
    finally:
        ssh.stop()


@dataclass
class Chain:
    agent: Agent
    server: Server
    ssh: SshServer
    host: Host
    key_file: Path
    storage: Path


@contextmanager
def chain(directory: Path, key_file: Path | None = None) -> Iterator[Chain]:
    """An agent that sees ``directory/root`` as its machine and libvirt's test driver."""
    root, storage, run = directory / "root", directory / "storage", directory / "run"
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    agent = assemble(
        Config(site=SITE, epoch=1, storage=storage), root=root, libvirt_uri="test:///default", timing=RealTiming()
    )
    server = Server(agent, run / "agent.sock")
    threading.Thread(target=_serve, args=(server,), daemon=True).start()
    try:
        with way_to(directory, run / "agent.sock", key_file) as way:
            yield Chain(agent, server, way.ssh, way.host, way.key_file, storage)
    finally:
        server.close()


def _serve(server: Server) -> None:
    try:
        server.serve_forever()
    except OSError:
        return  # closed by the test
