# SPDX-License-Identifier: Apache-2.0
"""Operations that reconciling begins by itself."""

from __future__ import annotations

from orchestrator.operations.definitions.vms import STOP_VM
from orchestrator.operations.step import Definition
from orchestrator.operations.steps import repairs, vm_record

CLEAN_UP = Definition(
    kind="clean_up",
    steps=(vm_record.STOPPING, repairs.CLEAN, vm_record.STOPPED),
    stuck=vm_record.mark_stuck,
    abandoned=STOP_VM.abandoned,
)
"""About a stopped VM, which is held meanwhile, or about the id of one that is gone."""

SETTLE_LEDGER = Definition(
    kind="settle_ledger",
    steps=(repairs.EPOCH, repairs.SETTLE),
    stuck=lambda _: None,
    abandoned=lambda _: None,
    forward_only=True,
)
"""About a host whose agent has lost its ledger and does nothing until whose everything is is written down again."""

MEND_HOST = Definition(
    kind="mend_host",
    steps=(repairs.MEND,),
    stuck=lambda _: None,
    abandoned=lambda _: None,
)
"""About a host that lacks what its VMs rely on: virtual functions of its GPUs, networks."""
