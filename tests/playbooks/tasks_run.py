# SPDX-License-Identifier: Apache-2.0
"""Runs tasks of the collection in the real ansible-playbook, or their modules alone, and gives what each returned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.playbooks.local_runs import ROOT

Task = tuple[str, dict[str, Any]]
"""A module of vgpuctl.cloud by its short name, and its parameters."""


@dataclass(frozen=True)
class Ran:
    """What every task returned, in order, failed ones too; what Ansible printed."""

    results: list[dict[str, Any]]
    printed: str

    @property
    def changed(self) -> list[bool]:
        return [one["changed"] for one in self.results]

    @property
    def refusals(self) -> list[str]:
        """The line of each task that failed."""
        return [one["msg"] for one in self.results if one.get("failed")]


@dataclass(frozen=True)
class ControlNode:
    """A machine with Ansible and nothing of ours but the collection; ``scratch`` is its user's home."""

    scratch: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *tasks: Task, flags: tuple[str, ...] = ()) -> Ran:
        """All of them on one machine, one after the other; one that fails does not end the run."""
        answers = self.scratch / "answers.json"
        answers.unlink(missing_ok=True)
        steps: list[dict[str, Any]] = [
            {f"vgpuctl.cloud.{module}": parameters, "register": f"answer_{number}", "ignore_errors": True}
            for number, (module, parameters) in enumerate(tasks)
        ]
        together = "{{ [" + ", ".join(f"answer_{number}" for number in range(len(tasks))) + "] | to_json }}"
        kept = {"content": together, "dest": str(answers), "mode": "0600"}
        steps.append({"ansible.builtin.copy": kept, "check_mode": False, "diff": False, "no_log": True})
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": steps}
        (self.scratch / "play.yml").write_text(json.dumps([play]))
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", "play.yml", *flags],
            cwd=self.scratch, capture_output=True, text=True, timeout=600,
            env={
                "PATH": os.environ["PATH"], "HOME": str(self.scratch), "LC_ALL": "C.UTF-8",
                "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "ANSIBLE_LOCALHOST_WARNING": "False",
                "ANSIBLE_PYTHON_INTERPRETER": sys.executable, "ANSIBLE_PIPELINING": "True", **self.environment,
            },
        )  # fmt: skip
        assert answers.exists(), done.stdout + done.stderr
        return Ran(json.loads(answers.read_text()), done.stdout + done.stderr)

    def call(self, *tasks: Task, check: bool = False) -> Ran:
        """The modules alone: a task takes Ansible most of a second beside what its module does."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.playbooks.module_calls"], input=json.dumps({"tasks": tasks, "check": check}),
            cwd=ROOT, capture_output=True, text=True, timeout=600,
            env={
                "PATH": os.environ["PATH"], "HOME": str(self.scratch), "LC_ALL": "C.UTF-8",
                "PYTHONPATH": str(ROOT / "collections"), **self.environment,
            },
        )  # fmt: skip
        answers = [json.loads(line) for line in done.stdout.splitlines() if line]
        assert len(answers) == len(tasks), done.stdout + done.stderr
        return Ran([{"changed": False, **answer} for answer in answers], done.stdout + done.stderr)
