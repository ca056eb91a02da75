# SPDX-License-Identifier: Apache-2.0
"""A VM whose guest can be reached, and roles run in it."""

from __future__ import annotations

from dataclasses import replace

from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm


def with_reachable_vm(plane: ControlPlane) -> None:
    plane.add_host(L40S_HOST)
    plane.services.vms.create(create_vm(profile="NVIDIA L40S-12Q"))
    plane.engine.drain()
    with plane.store.begin() as tx:
        (vm,) = tx.vms.list()
        tx.vms.update(replace(vm, addresses=("192.0.2.7",)))


def provision(plane: ControlPlane) -> str | None:
    """Id of the operation."""
    roles, secrets = ("guest_licence", "guest_check"), {"licence_token": "eyJ.TOKEN"}
    return plane.services.guests.provision("default", "train", roles, secrets=secrets).operation
