# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.steps import domain, suspending, vm_record


def test_every_operation_that_ends_with_a_running_vm_leaves_it_wanted_so_and_no_other_does() -> None:
    starts_it = {kind for kind, one in DEFINITIONS.items() if {domain.START, suspending.RESUME} & set(one.steps)}
    tried = {"boot_backup"}  # it removes its VM again
    assert {kind for kind, one in DEFINITIONS.items() if one.leaves == "running"} == starts_it - tried


def test_nothing_is_wanted_of_a_vm_that_was_to_be_made_and_was_taken_back() -> None:
    making = {kind for kind, one in DEFINITIONS.items() if one.steps[0].undo is vm_record.CLAIM.undo}
    adopted = {"adopt_vm"}  # what it leaves was there before
    assert {kind for kind, one in DEFINITIONS.items() if one.removed("undone")} == making - adopted


def test_what_a_lost_vm_left_on_its_host_is_not_taken_for_removed_when_its_record_is_deleted() -> None:
    assert {kind for kind, one in DEFINITIONS.items() if one.removed("done")} == {"delete_vm", "boot_backup"}
