# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.steps import vm_record
from orchestrator.reconcile.wanted import REMOVED, TO_RUN


def test_after_every_operation_that_ends_with_a_running_vm_it_is_to_run() -> None:
    assert {kind for kind, one in DEFINITIONS.items() if one.steps[-1] is vm_record.RUNNING} == TO_RUN


def test_nothing_is_wanted_of_a_vm_that_was_to_be_made_and_was_taken_back() -> None:
    making = {kind for kind, one in DEFINITIONS.items() if one.steps[0].undo is vm_record.forget_vm}
    adopted = {"adopt_vm"}  # what it leaves was there before
    assert {kind for kind, end in REMOVED.items() if end == "undone"} == making - adopted
