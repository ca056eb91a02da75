# SPDX-License-Identifier: Apache-2.0
"""Backups on a simulated host, which answers as an agent does: those of several VMs go on beside each other."""

from __future__ import annotations

from orchestrator.core.actions.backups import VerifyBackup
from orchestrator.core.actions.host_actions import FencingToken
from orchestrator.sim.agent import perform
from orchestrator.sim.fleet import enrolled, new_machine


def test_two_are_verified_beside_each_other() -> None:
    """Each is asked for until it is done, and neither ends the other."""
    machine = enrolled(new_machine(1, []), "site")
    machine.backups = {"first": 1, "second": 1}

    def is_unfinished(backup: str) -> bool:
        token = FencingToken(site="site", epoch=1, operation=f"verify {backup}", attempt=1)
        action = VerifyBackup(target="nas", of_vm="vm", password="", backup=backup, size_bytes=1)
        return perform(machine, action, token).unfinished

    asked = [is_unfinished(backup) for backup in ("first", "second", "first", "second")]
    assert asked == [True, True, False, False]
