# SPDX-License-Identifier: Apache-2.0
"""A guest whose ssh server is real and listens on the loopback: what it is told to run, it runs here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
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


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


Answer = Callable[[str, bytes], bytes]
"""What is printed instead of running a command: by the command, and what its caller wrote for it to read."""


@contextmanager
def guest_on_loopback(
    home: Path, public_key: Path, host_key: asyncssh.SSHKey | None = None, python: Answer | None = None
) -> Iterator[int]:
    """Its port while it is open. Whoever has the key is let in; commands run with ``home`` as their home.

    ``python``: answers in place of the guest's Python; None: that is the one of this machine."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

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
        printed, complained = await asyncio.gather(_all_of(child.stdout), _all_of(child.stderr))
        code = await child.wait()
        feeding.cancel()
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

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
    try:
        yield server.get_port()
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
