# SPDX-License-Identifier: Apache-2.0
"""One run of ansible-playbook, in a process of its own that is told of and ended from here.

A killed one leaves its workers behind, which have sessions of their own, and their ssh likewise: they are ended, too.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.adapters.ansible.outcome import MAX_BYTES, MAX_LINE_BYTES, RunReport, Told
from orchestrator.core.errors import Fatal

_PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
    "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies",
)  # fmt: skip
_TEMPORARY = "/tmp"  # noqa: S108 - of the sandbox alone
_PACKAGE = Path(__file__).resolve().parents[2]
HINT = "install bubblewrap (docs/howto/run-a-server.md); where it cannot run, ansible_sandbox: none in config.yaml"


def sandboxed(
    command: Sequence[str], scratch: Path, *, readable: Sequence[Path], writable: Sequence[Path]
) -> list[str]:
    """The command line that runs ``command`` so. ``scratch``: the run's own directory, its home.

    There is no /proc: nothing of a run asks for it, and containers do not let it be mounted.

    :raises Fatal: ``ansible.no_sandbox``: there is no bubblewrap
    """
    program = shutil.which("bwrap", path=_PROGRAM_PATH)
    if program is None:
        raise Fatal("ansible.no_sandbox", "there is no bubblewrap to keep runs of Ansible apart", hint=HINT)
    own = (Path(sys.base_prefix), Path(sys.prefix), _PACKAGE)
    return [
        program, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent",
        "--new-session", "--cap-drop", "ALL", "--dev", "/dev", "--tmpfs", _TEMPORARY, "--setenv", "TMPDIR", _TEMPORARY,
        *(word for path in _SYSTEM for word in ("--ro-bind-try", path, path)),
        *(word for path in (*own, *readable) for word in ("--ro-bind", str(path), str(path))),
        *(word for path in (scratch, *writable) for word in ("--bind", str(path), str(path))),
        "--ro-bind", str(_account(scratch)), "/etc/passwd",
        "--", *command,
    ]  # fmt: skip


def _account(scratch: Path) -> Path:
    """ssh asks who it runs as."""
    path = scratch / "passwd"
    path.write_text(f"vgpuctl:x:{os.getuid()}:{os.getgid()}::{scratch}:/bin/sh\n", encoding="utf-8")
    return path


POLL_S: Final = 1
"""How often a silent play is asked whether it should end."""
CHUNK: Final = 65536
END_S: Final = 10
"""Until a run that has told all is ended."""


@dataclass(frozen=True, kw_only=True)
class Play:
    """``playbook`` is run against ``inventory`` with exactly ``environment``; ``scratch`` is thrown away later.

    ``variables``: of the highest precedence, none of them a template. ``readable``, ``writable``: what the run sees
    beside ``scratch``. ``confined``: in a sandbox."""

    playbook: Path
    inventory: dict[str, object]
    environment: dict[str, str]
    scratch: Path
    timeout_s: int
    silent_s: int | None = None
    """How long it may tell nothing; None: as long as it lasts."""
    variables: Mapping[str, object] = field(default_factory=dict)
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    confined: bool = True
    check: bool = False
    """Nothing is changed: tasks tell whether they would."""


@dataclass(frozen=True, kw_only=True)
class PlaybookJob:
    """A playbook by its name, and what it is given. ``files``: those that it sends, which variables name. ``secrets``:
    texts that it sends, for which variables of these names name files that are written for the run alone."""

    playbook: str
    timeout_s: int
    variables: Mapping[str, object] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    check: bool = False

    def given(self, scratch: Path) -> dict[str, object]:
        """The variables, after secrets were written into ``scratch``: none is in an inventory or an event."""
        written: dict[str, object] = {}
        for name, text in self.secrets.items():
            file = scratch / f"secret-{name}"
            file.touch(mode=0o600, exist_ok=False)
            file.write_text(text, encoding="utf-8")
            written[name] = str(file)
        return {**self.variables, **written}


@contextmanager
def scratch_space(directory: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """Two directories for as long as a run lasts: its own files, and its sockets."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix=f"{name}-")))
        # A socket's path has at most 107 characters (unix(7)); the state directory may be deep.
        yield scratch, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpuctl-")))


def run_play(play: Play, progress: Callable[[str], None], leaving: Callable[[], bool] = lambda: False) -> RunReport:
    """Run it to its end and report; ``progress`` gets the title of each task as it starts.

    As soon as ``leaving`` says so ansible-playbook and all that it started is killed; the status is then ``canceled``,
    after ``timeout_s`` or a silence of ``silent_s`` it is ``timeout``, and ``too_much`` when more was told than a run
    has to tell.
    Several plays may run at once in different threads; they share nothing but the machine.

    :raises Fatal: ``ansible.no_sandbox``
    """
    report = Told(progress)
    with _started(play) as process:
        ended = _follow(process, report, play, leaving)
    if play.confined and not report.begun and ended is None:
        raise Fatal(
            "ansible.no_sandbox", "bubblewrap cannot keep runs of Ansible apart on this machine", hint=HINT,
            details="\n".join(report.output)[-2000:],
        )  # fmt: skip
    return report.report(ended, process.returncode)


@contextmanager
def _started(play: Play) -> Iterator[subprocess.Popen[bytes]]:
    """Told what to run. Afterwards nothing of it is left."""
    _write_variables(play.scratch, play.variables)
    command = [sys.executable, "-m", "orchestrator.adapters.ansible.inside"]
    if play.confined:
        readable = (play.playbook.parent, *play.readable)
        command = sandboxed(command, play.scratch, readable=readable, writable=play.writable)
    wanted = {
        "scratch": str(play.scratch),
        "directory": str(play.playbook.parent),
        "playbook": play.playbook.name,
        "inventory": play.inventory,
        "bounded": play.confined,
        "check": play.check,
    }
    with subprocess.Popen(
        command, env=play.environment, cwd="/", start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            _give(process, json.dumps(wanted).encode())
            yield process
        finally:
            process.kill()
            end_all(Path(play.environment["HOME"]))


def _give(process: subprocess.Popen[bytes], text: bytes) -> None:
    if process.stdin is None:
        return
    try:
        process.stdin.write(text)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has ended, and what it printed says why


def _follow(process: subprocess.Popen[bytes], report: Told, play: Play, leaving: Callable[[], bool]) -> str | None:
    """Why it has to be ended; None: it has ended."""
    if process.stdout is None:
        return None
    output, left, rest = process.stdout.fileno(), MAX_BYTES, b""
    began = heard = time.monotonic()
    silent_s = play.timeout_s if play.silent_s is None else play.silent_s
    while True:
        if leaving():
            return "canceled"
        if time.monotonic() > min(began + play.timeout_s, heard + silent_s):
            return "timeout"
        if not select.select([output], [], [], POLL_S)[0]:
            continue
        data = os.read(output, CHUNK)
        if not data:
            break
        heard = time.monotonic()
        left -= len(data)
        *lines, rest = (rest + data).split(b"\n")
        if left < 0 or len(rest) > MAX_LINE_BYTES:
            return "too_much"
        for line in lines:
            report.take(line)
    if rest:
        report.take(rest)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        return "timeout"
    return None


def _write_variables(scratch: Path, variables: Mapping[str, object]) -> None:
    """Where ansible-runner looks for variables of the highest precedence."""
    path = scratch / "env/extravars"
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(unsafe_yaml(dict(variables)), encoding="utf-8")


def unsafe_yaml(value: object) -> str:
    """YAML on one line in which no text is a template, whatever is in it."""
    if isinstance(value, str):
        return f"!unsafe {_quoted(value)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(str(name))}: {unsafe_yaml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(unsafe_yaml, value)) + "]"
    return json.dumps(value)


def _quoted(text: str) -> str:
    return '"' + re.sub(r"[^ !#-\[\]-~]", lambda letter: f"\\U{ord(letter[0]):08x}", text) + '"'


ROUNDS: Final = 20
"""A process may start another just before it is ended; a round that finds none is the last."""
BETWEEN_ROUNDS_S: Final = 0.01
DEATH_MS: Final = 1000
"""How long an ended process is waited for: only one that hangs inside the kernel needs it."""


def end_all(home: Path, processes: Path = Path("/proc")) -> None:
    """Kill every process whose environment names ``home``: a run's scratch directory, which no other process has."""
    mark = b"HOME=" + os.fsencode(home)
    for _ in range(ROUNDS):
        directories = [processes / entry.name for entry in processes.iterdir() if entry.name.isdigit()]
        if not sum(_end(process, mark) for process in directories if int(process.name) != os.getpid()):
            return
        time.sleep(BETWEEN_ROUNDS_S)


def _end(process: Path, mark: bytes) -> bool:
    """Whether another round has to look again.

    The descriptor is opened before the environment is read, so that a reused number is never hit. A process that is
    just becoming another program shows no environment for a moment, though it has an executable (kernel threads and
    dead processes have none).
    """
    with suppress(OSError):
        descriptor = os.pidfd_open(int(process.name))
        try:
            environment = (process / "environ").read_bytes()
            if mark in environment.split(b"\0"):
                _kill(descriptor)
                return True
            return not environment and bool((process / "exe").readlink())
        finally:
            os.close(descriptor)
    return False


def _kill(descriptor: int) -> None:
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    death = select.poll()
    death.register(descriptor, select.POLLIN)
    death.poll(DEATH_MS)
