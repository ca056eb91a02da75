# SPDX-License-Identifier: Apache-2.0
"""What has to change of floating addresses, and of which networks are joined, so that they are as a file says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from orchestrator.core.manifest import Action, Change, FieldChange, WantedFloating, listed
from orchestrator.core.vms.network import WantedNetwork


def peer_changes(wanted: Iterable[WantedNetwork], existing: Mapping[str, WantedNetwork]) -> Iterator[Change]:
    """What they are joined with: after all networks of the same file. None is left for a file's not naming it."""
    for network in wanted:
        current = existing.get(network.key)
        has = () if current is None else current.peers
        if not set(network.peers) <= set(has):
            fields = (FieldChange(field="peers", there=listed(has), wanted=listed({*has, *network.peers})),)
            yield Change(kind="network", name=network.key, action="set", fields=fields)


def floating_changes(wanted: Iterable[WantedFloating], existing: Mapping[str, WantedFloating]) -> Iterator[Change]:
    """Before networks: what leads out of these takes any address that is free."""
    for floating in wanted:
        current = existing.get(floating.key)
        has = None if current is None else current.network
        if current is None or floating.network not in {None, has}:
            fields = (FieldChange(field="network", there=has, wanted=floating.network or "the only one"),)
            action: Action = "add" if current is None else "refuse"
            yield Change(kind="floating_address", name=floating.key, action=action, fields=fields)


def led_changes(wanted: Iterable[WantedFloating], existing: Mapping[str, WantedFloating]) -> Iterator[Change]:
    """Where they lead: after the VMs of the same file."""
    for floating in wanted:
        current = existing.get(floating.key) or replace(floating, vm=None, vm_network=None)
        same = floating.vm_network in {None, current.vm_network}
        if floating.vm is not None and not (floating.vm == current.vm and same):
            fields = (FieldChange(field="vm", there=_led_to(current), wanted=_led_to(floating)),)
            yield Change(kind="floating_address", name=floating.key, action="set", fields=fields)


def _led_to(floating: WantedFloating) -> str:
    card = "" if floating.vm_network is None else f" on network {floating.vm_network}"
    return "none" if floating.vm is None else f"{floating.vm}{card}"
