# SPDX-License-Identifier: Apache-2.0
"""Runs playbooks on this machine through the product's own runner, in a scratch directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from orchestrator.adapters.ansible.connection import GROUP, environment
from orchestrator.adapters.ansible.outcome import RunReport
from orchestrator.adapters.ansible.play import Play, run_play

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "playbooks/roles/vgpuctl_agent"
PLAYS = Path(__file__).parent / "plays"


def run_local(
    play: str,
    scratch: Path,
    hosts: dict[str, dict[str, object]],
    progress: Callable[[str], None] = lambda _title: None,
    leaving: Callable[[], bool] = lambda: False,
    silent_s: int | None = None,
) -> RunReport:
    """Every name in ``hosts`` is this machine, with its own variables."""
    scratch.mkdir(exist_ok=True)
    reach = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "role": str(ROLE)}
    return run_play(
        Play(
            playbook=PLAYS / play,
            inventory={GROUP: {"hosts": {name: {**reach, **own} for name, own in hosts.items()}}},
            environment={
                **environment(scratch, ROOT / "playbooks/ansible.cfg"),
                "ANSIBLE_LIBRARY": str(ROLE / "library"),
            },
            scratch=scratch,
            timeout_s=120,
            silent_s=silent_s,
            confined=False,
        ),
        progress,
        leaving,
    )
