# SPDX-License-Identifier: Apache-2.0
"""Fence agents of the distribution (Debian: fence-agents): programs that switch the power of a machine by its BMC.

How a host is reached stands in a file of the operator's, which its agent gets as it is on its standard input, with what
to do: nothing of it is ever an argument. An agent ends with 0 when that is done, and of ``status`` with 0 where the
power is on and 2 where it is off (FenceAgentAPI of ClusterLabs).
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from stat import S_IMODE
from typing import Final, Literal

from orchestrator.core.errors import Conflict, Retryable, one_line
from orchestrator.regular_file import read_at_most

_AGENT: Final = re.compile(r"fence_[a-z0-9_]{1,40}", re.ASCII)
_OPTION: Final = re.compile(r"[a-z][a-z0-9_-]{0,40}", re.ASCII)
_SECRETS: Final = ("pass", "secret", "token", "key")
_OFF: Final = 2
_LIMIT_S: Final = 120.0
"""An agent waits by itself until the power is off: a minute with fence_ipmilan."""
_MAX_BYTES: Final = 16 * 1024
_MAX_SHOWN: Final = 200


@dataclass(frozen=True, kw_only=True)
class FenceAgents:
    """``directory``: has a file ``HOST.conf`` for each host that may be fenced, of lines ``name=value`` and one
    ``agent=fence_…``, which nobody else can read. ``programs``: where the agents are."""

    directory: Path
    programs: Path = Path("/usr/sbin")
    limit_s: float = _LIMIT_S

    def knows(self, host: str) -> bool:
        return self._file(host).is_file()

    def power_off(self, host: str) -> str:
        agent, options = self._read(host)
        self._run(agent, host, options, "off", wanted=0)
        self._run(agent, host, options, "status", wanted=_OFF)
        return f"{agent.name} has switched it off, and sees it off"

    def _file(self, host: str) -> Path:
        return self.directory / f"{host}.conf"

    def _read(self, host: str) -> tuple[Path, dict[str, str]]:
        file = self._file(host)
        hint = f"docs/howto/a-host-died.md tells what to write into {file}; --fenced-by-hand needs none"
        if not file.is_file():
            raise Conflict("fence.not_configured", f"nothing says how host {host} is switched off", hint=hint)
        if S_IMODE(file.stat().st_mode) & 0o077:
            raise Conflict("fence.readable", f"others can read {file}", hint=f"chmod 600 {file}")
        lines = (read_at_most(file, _MAX_BYTES) or b"").decode(errors="replace").splitlines()
        pairs = (line.partition("=") for line in map(str.strip, lines) if line and not line.startswith("#"))
        options = {name.strip(): value.strip() for name, _, value in pairs}
        agent = options.pop("agent", "")
        if not _AGENT.fullmatch(agent) or not all(map(_OPTION.fullmatch, options)) or "action" in options:
            what = f"{file} has no line agent=fence_…, or one that is no option of an agent"
            raise Conflict("fence.not_configured", what, hint=hint)
        program = self.programs / agent
        if not program.is_file():
            hint = "apt install fence-agents"
            raise Conflict("fence.no_agent", f"{agent} is not installed where the server runs", hint=hint)
        return program, options

    def _run(
        self, agent: Path, host: str, options: dict[str, str], action: Literal["off", "status"], *, wanted: int
    ) -> None:
        text = "".join(f"{name}={value}\n" for name, value in {**options, "action": action}.items())
        try:
            run = subprocess.run(
                [agent], input=text.encode(), capture_output=True, timeout=self.limit_s, check=False, cwd="/",
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            why = "it did not end in time" if isinstance(error, subprocess.TimeoutExpired) else str(error.strerror)
            raise _failed(agent, host, action, why) from error
        if run.returncode != wanted:
            last = run.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
            raise _failed(agent, host, action, _without_secrets(last[0], options))


def _failed(agent: Path, host: str, action: str, why: str) -> Retryable:
    return Retryable(
        "fence.failed",
        f"{agent.name} could not see the power of host {host} off ({action}): {why}",
        hint="look at the host's BMC; who has switched it off by hand says --fenced-by-hand",
    )


def _without_secrets(text: str, options: dict[str, str]) -> str:
    for name, value in options.items():
        if value and any(part in name for part in _SECRETS):
            text = text.replace(value, "***")
    return one_line(text, _MAX_SHOWN)
