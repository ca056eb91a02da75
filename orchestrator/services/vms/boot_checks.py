# SPDX-License-Identifier: Apache-2.0
"""Whether what backups hold boots: each is tried as a VM of its own, which nothing can reach, and which is removed."""

from __future__ import annotations

from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.pool import NO_POOL
from orchestrator.core.vms.image import short_of
from orchestrator.services.messages import CreateVm, Started
from orchestrator.services.vms.known_backups import known_backup
from orchestrator.services.vms.vms import VmService


def boot_backup(vms: VmService, tenant: str, backup_id: str, profile: str | None, timeout_s: int) -> Started:
    """As a VM without network cards, which counts on the tenant's quota. ``profile``: None: that of the VM that it is
    of, and its size. ``timeout_s``: how long its console has to ask for a login.

    :raises NotFound: ``backup.unknown``
    :raises InvalidInput: ``backup.which_image``, ``backup.which_profile``, ``backup.profile_network``
    :raises Conflict: ``backup.unfinished``, ``backup.in_use``, ``vm.exists``; and as creating a VM"""
    with vms.store.read() as tx:
        backup = known_backup(tx, tenant, backup_id)
        of = tx.vms.find_id(backup.vm)
    image = backup.image or (None if of is None else of.spec.image)
    if image is None:
        hint = "'vgpuctl image list' shows which there are: create-vm takes one with --image, beside --from-backup"
        raise InvalidInput("backup.which_image", f"the VM of backup {backup.id} is gone, and its image", hint=hint)
    if profile is None and of is None:
        hint = "--profile NAME: 'vgpuctl profile list' shows which there are"
        raise InvalidInput("backup.which_profile", f"the VM of backup {backup.id} is gone, and its profile", hint=hint)
    size = (0, 0) if profile is not None or of is None else (of.spec.vcpus, of.spec.memory_mib)
    name = profile or ("" if of is None else of.spec.profile)
    if vms.planner.index.known.of_tenants({tenant}).resolve(name).nic is not None:
        hint = "--profile NAME: one without, which may be smaller"
        raise InvalidInput("backup.profile_network", f"VMs of {name} are on a network by themselves", hint=hint)
    return vms.create(
        CreateVm(
            name=f"boot-{backup.id[:8]}", tenant=tenant, profile=name, image=short_of(image, tenant), vcpus=size[0],
            memory_mib=size[1], disk_bytes=backup.size_bytes, network="", pool=NO_POOL, boot_policy="ask-controller",
            from_backup=backup.id, boot_timeout_s=timeout_s, no_provision=True,
        )
    )  # fmt: skip
