# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's own script collects of the driver when something went wrong: kept on the host, for people.

The script is the driver's (``nvidia-bug-report.sh``, by root), and may hang with a GPU that is lost: in its safe mode
it leaves out what hangs most. It runs in a unit of its own, as it reads more of the host than the agent may, and ends
with its time or its file's size. Nothing is read of what it writes; it adds ``.gz`` to the file's name where it
compresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.core.actions.bug_reports import CollectBugReport
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.errors import Fatal, InvalidInput, NotFound

KEPT: Final = 5
"""The newest; a report has some MiB."""
MAX_MIB: Final = 64
_LIMIT_S: Final = 120


@dataclass(frozen=True)
class BugReports:
    paths: Paths

    @property
    def handlers(self) -> Mapping[type[HostAction], Callable[..., ActionResult]]:
        return {CollectBugReport: self.collect}

    def collect(self, action: CollectBugReport) -> ActionResult:
        """:raises InvalidInput: ``report.name_invalid``; :raises NotFound: ``host.no_bug_report``: no such script
        :raises Fatal: ``host.bug_report_failed``"""
        try:
            name = str(UUID(action.report))
        except ValueError as error:
            raise InvalidInput("report.name_invalid", "a report is called by the id of an operation") from error
        directory, script = self.paths.reports, self.paths.root / "usr/bin/nvidia-bug-report.sh"
        for known in directory.glob(f"{name}.log*"):
            return ActionResult(changed=False, message=str(known))
        if not script.is_file():
            raise NotFound("host.no_bug_report", "the host has no nvidia-bug-report.sh", hint="the driver brings it")
        directory.mkdir(mode=0o700, exist_ok=True)
        self._run(script, directory / f".{name}.log")
        written = next(directory.glob(f".{name}.log*"), None)
        if written is None:
            raise _failed("it has written nothing")
        written.chmod(0o600)
        file = written.replace(directory / written.name[1:])
        for old in sorted(directory.iterdir(), key=lambda kept: kept.stat().st_mtime)[:-KEPT]:
            old.unlink()
        return ActionResult(changed=True, message=str(file))

    def _run(self, script: Path, into: Path) -> None:
        unit = ("--quiet", "--collect", "--wait", f"--property=RuntimeMaxSec={_LIMIT_S}", "--property=UMask=0077")
        limits = (f"--property=LimitFSIZE={MAX_MIB}M", f"--working-directory={into.parent}")
        program = str(self.paths.root / "usr/bin/systemd-run")
        try:
            ended = run(
                [program, *unit, *limits, str(script), "--safe-mode", "--output-file", str(into)], limit_s=_LIMIT_S + 10
            )
        except (ChildHangs, OSError) as error:
            raise _failed(str(error)) from error
        if ended.code:
            raise _failed(ended.output or f"exit {ended.code}")


def _failed(details: str) -> Fatal:
    return Fatal(
        "host.bug_report_failed", "nvidia-bug-report.sh has made no report", details=details,
        hint="run it on the host by hand, with --safe-mode",
    )  # fmt: skip
