# SPDX-License-Identifier: Apache-2.0
"""A guest whose ssh server is real and listens on the loopback: what it is told to run, it runs here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncssh


async def _feed(process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    """What the caller writes, until they end it."""
    if child.stdin is None:
        raise AssertionError("the child was begun without a pipe")
    with suppress(BrokenPipeError, ConnectionResetError):
        while data := await process.stdin.read(65536):
            child.stdin.write(data)
            await child.stdin.drain()
    child.stdin.close()


async def ended(child: asyncio.subprocess.Process) -> None:
    """Also where whoever wanted it has gone, or its server ends."""
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


@contextmanager
def listening(listen: Callable[[], Awaitable[asyncssh.SSHAcceptor]]) -> Iterator[int]:
    """The port of a server in a thread of its own. When that ends nothing of its loop is left half done: a child's
    transport would complain in whichever test garbage is collected next."""
    served: Future[tuple[int, Callable[[], object]]] = Future()

    async def serve() -> None:
        end, loop = asyncio.Event(), asyncio.get_running_loop()
        server = await listen()
        served.set_result((server.get_port(), lambda: loop.call_soon_threadsafe(end.set)))
        await end.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    port, end = served.result(300)
    try:
        yield port
    finally:
        end()
        thread.join()


Answer = Callable[[str, bytes], bytes]
"""What is printed instead of running a command: by the command, and what its caller wrote for it to read."""


@contextmanager
def guest_on_loopback(
    home: Path, public_key: Path, host_key: asyncssh.SSHKey | None = None, python: Answer | None = None
) -> Iterator[int]:
    """Its port while it is open. Whoever has the key is let in; commands run with ``home`` as their home.

    ``python``: answers in place of the guest's Python; None: that is the one of this machine."""

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if python is not None and "/usr/bin/python3" in (process.command or ""):
            process.stdout.write(python(process.command or "", await process.stdin.read()))
            process.exit(0)
            return
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", process.command or "true", env=environment, cwd=home,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        feeding = asyncio.ensure_future(_feed(process, child))
        try:
            printed, complained = await asyncio.gather(_all_of(child.stdout), _all_of(child.stderr))
            code = await child.wait()
        finally:
            feeding.cancel()
            await ended(child)
        process.stdout.write(printed)
        process.stderr.write(complained)
        process.exit(code)

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1", 0,
            server_host_keys=[host_key or asyncssh.generate_private_key("ssh-ed25519")],
            authorized_client_keys=str(public_key),
            process_factory=run, sftp_factory=True, encoding=None,
        )  # fmt: skip

    with listening(listen) as port:
        yield port
