# SPDX-License-Identifier: Apache-2.0
"""Drives the installed command exactly as a person would: a process, arguments, exit code, output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.fakes.typed import COMMAND, Outcome


class Product:
    """One control plane with all its state below ``state``; ``tree``: of another version of the program."""

    def __init__(self, state: Path, environment: Mapping[str, str] | None = None, *, tree: Path | None = None) -> None:
        self.state, self.tree = state, tree
        self.environment = {**os.environ, "VGPUCTL_STATE": str(state), "NO_COLOR": "1", **(environment or {})}

    def start(self, *args: str) -> subprocess.Popen[str]:
        command = [str(COMMAND)] if self.tree is None else [sys.executable, "-m", "orchestrator.cli.main"]
        return subprocess.Popen(
            [*command, *args],
            env=self.environment,
            cwd=self.tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, limit_s: float = 400) -> Outcome:
        """Any exit code is fine here."""
        process = self.start(*args)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"vgpuctl {' '.join(args)} took over {limit_s} s\n{out}\n{err}") from None
        return Outcome(process.returncode, out, err)

    def ok(self, *args: str, limit_s: float = 400) -> Outcome:
        outcome = self.run(*args, limit_s=limit_s)
        assert outcome.code == 0, f"vgpuctl {' '.join(args)}: exit {outcome.code}\n{outcome.out}\n{outcome.err}"
        return outcome

    def json(self, *args: str) -> Any:
        return self.ok(*args, "-o", "json").json()

    def map(self) -> list[dict[str, Any]]:
        """The GPUs as they are cut and who has them, without what they do at the moment."""
        doing = {"utilization_ratio", "memory_used_bytes"}
        return [{name: gpu[name] for name in gpu.keys() - doing} for gpu in self.json("gpu", "map")]

    def refused(self, code: int, *args: str) -> Outcome:
        """Exit ``code``, one ``error:`` line, no traceback."""
        outcome = self.run(*args)
        assert outcome.code == code, f"vgpuctl {' '.join(args)}: exit {outcome.code}\n{outcome.out}\n{outcome.err}"
        assert outcome.err.count("error: ") == 1, outcome.err
        assert "Traceback" not in outcome.out + outcome.err
        return outcome

    def serve_pid(self) -> int:
        pid = self.json("server", "status")["pid"]
        assert isinstance(pid, int)
        return pid

    def close(self) -> None:
        self.run("server", "stop", limit_s=60)


def names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(str(row["name"]) for row in rows)
