# SPDX-License-Identifier: Apache-2.0
"""Choosing a PCI function to make a vGPU on."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.snapshot import VgpuParent


def first_free(parents: Sequence[VgpuParent], type_name: str, taken: frozenset[str]) -> VgpuParent | None:
    """The lowest address nobody has claimed, preferring those whose driver says it takes the type now.

    The driver's list may be older than the claims, so a function without the type is still a candidate:
    the driver has the last word when the vGPU is made.
    """
    free = sorted((p for p in parents if p.address not in taken), key=lambda p: p.address)
    return next((p for p in free if type_name in p.creatable), free[0] if free else None)
