# SPDX-License-Identifier: Apache-2.0
"""Operations in a VM's guest."""

from __future__ import annotations

from orchestrator.operations.step import Definition
from orchestrator.operations.steps import guest

PROVISION_VM = Definition(
    kind="provision_vm",
    steps=(guest.REACH, guest.PROVISION),
    stuck=guest.forget_secrets,
    abandoned=guest.forget_secrets,
)
"""The VM itself stays as it is, whatever becomes of the roles."""
