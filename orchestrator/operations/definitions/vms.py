# SPDX-License-Identifier: Apache-2.0
"""Operations on a VM and on data volumes. What a VM is made or deleted with is part of its own operations."""

from __future__ import annotations

from typing import Final

from orchestrator.operations.step import Definition
from orchestrator.operations.steps import (
    converting,
    device,
    domain,
    evacuating,
    guest,
    moving,
    moving_live,
    network_cards,
    plugging,
    pools,
    resizing,
    storage,
    suspending,
    vm_record,
    volumes,
)

_ON_DISK = (storage.IMAGE, storage.NETWORK, storage.VOLUME, storage.SEED)
_PREPARE = (vm_record.CLAIM, *_ON_DISK)
_RUN = (domain.START, domain.GUEST_SEEN, vm_record.RUNNING)

CREATE_VM = Definition(
    kind="create_vm",
    leaves="running",
    undone_leaves="absent",
    steps=(*_PREPARE, device.DEVICE, domain.DEFINE, *_RUN),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.forget_vm,
)

PREEMPT_FOR_VM = Definition(
    kind="preempt_for_vm",
    leaves="running",
    undone_leaves="absent",
    steps=(vm_record.CLAIM_DEALLOCATED, *_ON_DISK, device.DEVICE, domain.DEFINE, *_RUN),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.forget_vm,
)
"""A VM for which others are stopped or moved first, by operations that it waits for. What those lost that were stopped
does not come back when it fails: their users start them again."""

CREATE_STOPPED_VM = Definition(
    kind="create_stopped_vm",
    leaves="stopped",
    undone_leaves="absent",
    steps=(*_PREPARE, domain.DEFINE, vm_record.STOPPED),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.forget_vm,
)

ADOPT_VM = Definition(
    kind="adopt_vm",
    steps=(vm_record.CLAIM, domain.ADOPT, domain.AS_IT_IS),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.forget_vm,
)

START_VM = Definition(
    kind="start_vm",
    leaves="running",
    steps=(vm_record.STARTING, storage.NETWORK, device.DEVICE, domain.REDEFINE, *_RUN),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
)

START_DEALLOCATED_VM = Definition(
    kind="start_freed_vm",
    leaves="running",
    steps=(vm_record.PLACED, storage.NETWORK, device.DEVICE, domain.REDEFINE_PLACED, *_RUN),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
)
"""One that is deallocated and has claimed another on its host."""

STOP_VM = Definition(
    kind="stop_vm",
    leaves="stopped",
    steps=(vm_record.STOPPING, domain.SHUT_DOWN, device.REMOVE_DEVICE, vm_record.STOPPED),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
    forward_only=True,
)

RESTART_VM = Definition(
    kind="restart_vm",
    leaves="running",
    steps=(
        vm_record.STOPPING,
        domain.SHUT_DOWN,
        device.REMOVE_DEVICE,
        storage.NETWORK,
        device.DEVICE,
        domain.REDEFINE,
        *_RUN,
    ),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
    forward_only=True,
)
"""Its device is made anew, as after stop and start; its place is never free in between."""

SUSPEND_VM = Definition(
    kind="suspend_vm",
    leaves="stopped",
    steps=(suspending.SUSPENDING, suspending.SUSPEND, device.REMOVE_DEVICE, suspending.RECORD_SUSPENDED),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
)
"""Its memory and its devices' state are on its host's disk then, and its claims stay its own."""

RESUME_VM = Definition(
    kind="resume_vm",
    leaves="running",
    steps=(
        vm_record.STARTING,
        storage.NETWORK,
        device.DEVICE,
        domain.REDEFINE,
        suspending.RESUME,
        suspending.RECORD_RESUMED,
    ),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
)

DISCARD_SUSPENDED_VM = Definition(
    kind="discard_suspended_vm",
    leaves="stopped",
    steps=STOP_VM.steps,
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
    forward_only=True,
)
"""What a stop does to one that is suspended: its memory goes, and it boots from its disk when it is started."""

RENAME_VM = Definition(
    kind="rename_vm",
    steps=(vm_record.NAMED, domain.REDEFINE_RENAMED, vm_record.STOPPED),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
)
"""Stored with its new name. Of one that runs libvirt cannot change the domain's."""

RESIZE_VM = Definition(
    kind="resize_vm",
    steps=(resizing.RESIZING, resizing.RESIZED, resizing.SETTLED),
    stuck=vm_record.mark_stuck,
    abandoned=resizing.given_up,
)
"""About a stopped VM, on its host."""

RESIZE_RUNNING_VM = Definition(
    kind="resize_running_vm",
    leaves="running",
    steps=(
        resizing.RESIZING,
        resizing.STOP_TO_RESIZE,
        resizing.RESIZED,
        device.DEVICE,
        domain.REDEFINE,
        domain.START,
        domain.GUEST_SEEN,
        resizing.SETTLED,
    ),
    stuck=vm_record.mark_stuck,
    abandoned=resizing.given_up,
)
"""About one that runs: shut down and started with the other size."""

_TO_OTHER_HOST = (moving.COPY, storage.SEED, moving.DEFINE_MOVED, moving.CHANGE_HOSTS, moving.TAKE_DISKS)
_SETTLE_MOVE = (moving.CLEAR_SOURCE, moving.SETTLED)

MOVE_VM = Definition(
    kind="move_vm",
    steps=(moving.LEAVING, storage.IMAGE, storage.NETWORK, *_TO_OTHER_HOST, *_SETTLE_MOVE),
    no_return=moving.CHANGE_HOSTS,
    stuck=vm_record.mark_stuck,
    abandoned=moving.given_up,
)
"""About a stopped VM."""

MOVE_VM_COLD = Definition(
    kind="move_vm_cold",
    leaves="running",
    steps=(
        moving.LEAVING,
        storage.IMAGE,
        storage.NETWORK,
        moving_live.DEVICES,
        moving.STOP_TO_MOVE,
        *_TO_OTHER_HOST,
        device.DEVICE,
        domain.REDEFINE,
        domain.START,
        moving.MOVED_GUEST_SEEN,
        *_SETTLE_MOVE,
    ),
    no_return=moving.CHANGE_HOSTS,
    stuck=vm_record.mark_stuck,
    abandoned=moving.given_up,
)
"""About one that runs: shut down once its vGPUs are there, moved and started; then what it left is cleared, which
nobody waits for."""

_EVACUATE: Final = (
    evacuating.LEAVING,
    storage.IMAGE,
    storage.NETWORK,
    evacuating.SHARE,
    storage.SEED,
    moving.DEFINE_MOVED,
)

EVACUATE_VM = Definition(
    kind="evacuate_vm",
    leaves="running",
    steps=(
        *_EVACUATE,
        moving_live.DEVICES,
        evacuating.TAKE_OVER,
        device.DEVICE,
        domain.REDEFINE,
        domain.START,
        moving.MOVED_GUEST_SEEN,
        evacuating.SETTLED,
    ),
    no_return=evacuating.TAKE_OVER,
    stuck=vm_record.mark_stuck,
    abandoned=moving.given_up,
)
"""About one that ran on a host that is dead, and was fenced; that is asked nothing."""

EVACUATE_STOPPED_VM = Definition(
    kind="evacuate_stopped_vm",
    steps=(*_EVACUATE, evacuating.TAKE_OVER, evacuating.SETTLED),
    no_return=evacuating.TAKE_OVER,
    stuck=vm_record.mark_stuck,
    abandoned=moving.given_up,
)

MOVE_RUNNING_VM = Definition(
    kind="move_running_vm",
    steps=(
        moving_live.LEAVING,
        storage.IMAGE,
        storage.NETWORK,
        moving_live.EMPTY_DISK,
        storage.SEED,
        moving_live.DEVICES,
        moving.DEFINE_MOVED,
        moving_live.MIGRATE,
        moving.TAKE_DISKS,
        moving_live.GO_ON,
        moving.CLEAR_SOURCE,
        moving_live.SETTLED,
    ),
    no_return=moving_live.MIGRATE,
    found_done="vm.moved",
    stuck=vm_record.mark_stuck,
    abandoned=moving_live.given_up,
)
"""Like MOVE_VM, of one that runs."""

FREE_VM = Definition(
    kind="free_vm",
    leaves="stopped",
    steps=(vm_record.STOPPING, domain.SHUT_DOWN, device.REMOVE_DEVICE, vm_record.DEALLOCATED),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.say_stopped,
    forward_only=True,
)
"""Stopped, and its place is given back: its lease is over, or another VM needs it more. The disk stays."""

DELETE_LOST_VM = Definition(
    kind="delete_lost_vm",
    steps=(vm_record.RELEASE,),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.forget_vm,
    forward_only=True,
    waits_for_host=False,
)
"""Its host was given up: nothing is done there. What is still there, should it ever come back, may be all that its
users have left: ``leaves`` does not say that it may be removed."""

DELETE_VM = Definition(
    kind="delete_vm",
    leaves="absent",
    steps=(
        vm_record.DELETING,
        domain.POWER_OFF,
        device.REMOVE_DEVICE,
        domain.UNDEFINE,
        storage.REMOVE_SEED,
        storage.REMOVE_VOLUME,
        domain.GONE_SEEN,
        vm_record.RELEASE,
    ),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.forget_vm,
    forward_only=True,
)

ATTACH_VOLUME = Definition(
    kind="attach_volume",
    steps=(volumes.GIVEN, volumes.ON_HOST, volumes.REDEFINE, plugging.PLUGGED),
    stuck=vm_record.mark_stuck,
    abandoned=volumes.not_attached,
)
"""About the VM, running or stopped; its specification has the volume from the beginning."""

DETACH_VOLUME = Definition(
    kind="detach_volume",
    steps=(volumes.TAKING, volumes.REDEFINE, volumes.OFF_HOST, volumes.RECORD_TAKEN),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.as_before,
)
"""About the VM, running or stopped; its specification has the volume until the end."""

ATTACH_NETWORK = Definition(
    kind="attach_network",
    steps=(network_cards.GIVEN, storage.NETWORK, network_cards.PLUG, plugging.PLUGGED),
    stuck=vm_record.mark_stuck,
    abandoned=network_cards.not_attached,
)
"""As ATTACH_VOLUME."""

DETACH_NETWORK = Definition(
    kind="detach_network",
    steps=(network_cards.TAKING, network_cards.PLUG, network_cards.RECORD_TAKEN),
    stuck=vm_record.mark_stuck,
    abandoned=vm_record.as_before,
)
"""As DETACH_VOLUME."""

GROW_VOLUME = Definition(
    kind="grow_volume",
    steps=(volumes.GROWING, volumes.GROW),
    stuck=lambda _: None,
    abandoned=volumes.not_grown,
    forward_only=True,
)
"""About the VM that has the volume, or else about the volume."""

LIMIT_VOLUME = Definition(
    kind="limit_volume",
    steps=(volumes.LIMITING, volumes.LIMIT, plugging.PLUGGED),
    stuck=vm_record.mark_stuck,
    abandoned=volumes.not_limited,
)
"""As ATTACH_VOLUME."""

CONVERT_NETWORK = Definition(
    kind="convert_network",
    steps=(converting.CONVERTING, converting.TAKE_AWAY),
    stuck=lambda _: None,
    abandoned=lambda _: None,
)
"""About the network. Its VMs are stopped, and free again when it has ended."""

CREATE_POOL = Definition(
    kind="create_pool",
    steps=(pools.CREATING, pools.DECLARE, pools.READY),
    stuck=lambda _: None,
    abandoned=pools.forget,
)
"""About the pool, on a host that has it mounted."""

DELETE_POOL = Definition(
    kind="delete_pool",
    steps=(pools.DELETING, pools.WITHDRAW, pools.FORGET),
    stuck=lambda _: None,
    abandoned=pools.forget,
)

DELETE_VOLUME = Definition(
    kind="delete_volume",
    steps=(volumes.DELETING, volumes.DELETE, volumes.FORGET),
    stuck=lambda _: None,
    abandoned=volumes.forget_volume,
    forward_only=True,
)
"""About the volume. One that no host has a file of is deleted without an operation."""


PROVISION_VM = Definition(
    kind="provision_vm",
    steps=(guest.REACH, guest.PROVISION),
    stuck=guest.forget_secrets,
    abandoned=guest.forget_secrets,
)
"""The VM itself stays as it is, whatever becomes of the roles."""
