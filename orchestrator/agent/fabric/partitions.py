# SPDX-License-Identifier: Apache-2.0
"""Fabric partitions for VMs. Always: read, decide, change, read again; what others have activated is left alone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.attachments.gpu_record import GpuRecord, gpu_key
from orchestrator.agent.attachments.kind import Handlers
from orchestrator.agent.fabric.fmpm import FabricManager, Waits
from orchestrator.agent.fabric.members import BoardGpu, ListedPartition, PartitionMembers, remembered
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import binding, open_files, pci, reading
from orchestrator.core.actions.fabric import ActivateFabricPartition, DeactivateFabricPartition
from orchestrator.core.actions.host_actions import ActionResult
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown, VgpuctlError
from orchestrator.core.gpu.fabric import FabricPlace

PREFIX = "partition:"
_DRIVER = re.compile(r"\b([0-9]{3}(?:\.[0-9]{1,4}){1,2})\b")


def wrong_version(paths: Paths, own: str | None) -> str | None:
    """Why the fabric manager cannot work with the driver that is loaded; None: nothing speaks against it.

    ``own``: the fabric manager's version; None: it cannot be told.
    """
    match = _DRIVER.search(reading.text(paths.proc / "driver/nvidia/version") or "")
    if match is None or own is None or own == match[1]:
        return None
    return f"the host's fabric manager is {own} and its driver {match[1]}"


class FabricPartitions:
    def __init__(self, files: DeviceFiles, manager: FabricManager) -> None:
        self._files, self._paths, self._ledger = files, files.paths, files.ledger
        self._manager = manager
        self._alone = threading.Lock()

    @property
    def handlers(self) -> Handlers:
        return {ActivateFabricPartition: self.activate, DeactivateFabricPartition: self.deactivate}

    def activate(self, action: ActivateFabricPartition) -> ActionResult:
        """:raises Conflict: ``fabric.members_differ``, ``fabric.foreign``, ``fabric.in_use``, ``fabric.forgotten``,
            ``fabric.members_unknown``
        :raises Fatal: ``fabric.version``, ``fabric.partition_differs``, ``fabric.refused``, ``fabric.not_shared``,
            ``fabric.no_tool``, ``fabric.answer_invalid``
        :raises Retryable: ``fabric.down``; :raises Unknown: ``fabric.hung``"""
        with self._alone:
            self._check_members(action)
            wrong = wrong_version(self._paths, self._manager.version())
            if wrong is not None:
                raise Fatal(
                    "fabric.version",
                    f"no partition is activated: {wrong}",
                    hint="both must be of one version: install the other and reboot",
                )
            ours = self._ledger.owner(f"{PREFIX}{action.partition}")
            if self._read(action).active:
                if ours is None or ours.vm != action.vm:
                    raise _foreign(action.partition)
                return ActionResult(changed=False)
            if ours is not None and self._in_use(action.gpus):
                self._remind(action)
            else:
                self._join(action)
            self._write_down(action, active=True)
        return ActionResult(changed=True)

    def deactivate(self, action: DeactivateFabricPartition) -> ActionResult:
        """One that is not this VM's, or is nobody's after a reboot, is left as it is.

        :raises Conflict: ``vgpu.in_use``; :raises Fatal: ``gpu.reset_failed``, ``fabric.refused``
        :raises Retryable: ``fabric.down``; :raises Unknown: ``fabric.hung``"""
        with self._alone:
            ours = self._ledger.owner(f"{PREFIX}{action.partition}")
            if ours is None or ours.vm != action.vm:
                return ActionResult(changed=False)
            passed = [gpu for gpu in action.gpus if binding.is_passed_through(self._paths, gpu)]
            for gpu in passed:
                self._files.check_unused(self._paths.pci(gpu), gpu)
            for gpu in passed:
                binding.reset(self._paths, self._files.write_file, gpu)
            try:
                self._change(self._manager.deactivate, action.partition)
            except Fatal:  # of one that is not active the fabric manager does not want to hear
                if self._is_active(action.partition):
                    raise
            if self._is_active(action.partition):
                raise _not_taken(action.partition, "still")
            self._ledger.release(f"{PREFIX}{action.partition}")
        return ActionResult(changed=True)

    def adopt(self, vm: str, place: FabricPlace) -> None:
        """Write down again that a partition is the VM's, where it is active; and which modules its GPUs are, which
        their driver cannot be asked."""
        for gpu, module in zip(place.gpus, place.modules, strict=True):
            owner = self._ledger.owner(gpu_key(gpu))
            record = None if owner is None or owner.vm != vm else GpuRecord.from_text(owner.detail)
            if record is not None and record.said is not None and record.said.module_id is None:
                renewed = replace(record, said=replace(record.said, module_id=module))
                self._ledger.claim(gpu_key(gpu), vm, detail=renewed.to_text(), until_reboot=True)
        if self._is_active(place.partition):
            detail = json.dumps({"gpus": place.gpus, "active": True})
            self._ledger.claim(f"{PREFIX}{place.partition}", vm, detail=detail, until_reboot=True)

    def _join(self, action: ActivateFabricPartition) -> None:
        """The ledger keeps the owner when it is active or may yet come to be."""
        self._write_down(action, active=False)
        try:
            self._change(self._manager.activate, action.partition)
        except Unknown:
            if not self._is_active(action.partition):
                raise
        except VgpuctlError:
            self._ledger.release(f"{PREFIX}{action.partition}")
            raise
        if not self._is_active(action.partition):
            self._ledger.release(f"{PREFIX}{action.partition}")
            raise _not_taken(action.partition, "not")

    def _remind(self, action: ActivateFabricPartition) -> None:
        """A fabric manager that was started again is told what is active; nothing is done to GPUs that a VM drives."""
        try:
            self._manager.set_activated(self._activated())
        except Fatal as error:
            details = error.details
        else:
            details = None
        if not self._is_active(action.partition):
            raise Conflict(
                "fabric.forgotten",
                f"the fabric manager has forgotten partition {action.partition}, and its VM runs",
                hint="stop the VM and start it again; FABRIC_MODE_RESTART=1 keeps that from happening",
                details=details,
            )

    def _change(self, do: Callable[[int], None], partition: int) -> None:
        """One that was started again wants to know first what is active: what we have activated in this boot."""
        try:
            do(partition)
        except Waits:
            self._manager.set_activated(self._activated())
            try:
                do(partition)
            except Waits as error:
                raise Retryable("fabric.down", "the fabric manager is not ready yet", details=str(error)) from error

    def _activated(self) -> list[int]:
        owned = self._ledger.owned(PREFIX)
        return sorted(int(number) for number, owner in owned.items() if json.loads(owner.detail)["active"])

    def _write_down(self, action: ActivateFabricPartition, *, active: bool) -> None:
        detail = json.dumps({"gpus": action.gpus, "active": active})
        self._ledger.claim(f"{PREFIX}{action.partition}", action.vm, detail=detail, until_reboot=True)

    def _listed(self) -> tuple[ListedPartition, ...]:
        try:
            return self._manager.partitions()
        except Waits as error:
            raise Retryable("fabric.down", "the fabric manager is not ready yet", details=str(error)) from error

    def _read(self, action: ActivateFabricPartition) -> ListedPartition:
        members = self._members(action)
        for partition in self._listed():
            modules = {members.module_of(member) for member in partition.members}
            if partition.id == action.partition and any(members.is_unknown(member) for member in partition.members):
                raise Conflict(
                    "fabric.members_unknown",
                    f"nothing tells which GPUs are in fabric partition {partition.id}",
                    hint="stop the VMs with whole GPUs there: the fabric manager names a GPU while the NVIDIA driver "
                    "has it",
                )
            if partition.id == action.partition and modules == set(action.modules):
                return partition
        raise Fatal(
            "fabric.partition_differs",
            f"the fabric manager has no partition {action.partition} of these GPUs",
            hint="did somebody change the fabric manager's partitions? delete the VM and create it again",
            details=f"modules {', '.join(str(module) for module in action.modules)}",
        )

    def _members(self, action: ActivateFabricPartition) -> PartitionMembers:
        owners = {gpu: self._ledger.owner(gpu_key(gpu)) for gpu in action.gpus}
        said = {gpu: GpuRecord.from_text(owner.detail).said for gpu, owner in owners.items() if owner is not None}
        gpus = [
            BoardGpu(address=address, uuid=gpu.uuid or "", module=gpu.module_id) for address, gpu in said.items() if gpu
        ]  # fmt: skip
        identities = [pci.identity(str(self._paths.pci(gpu))) for gpu in action.gpus]
        devices = ["0" if identity is None else identity.device for identity in identities]
        return PartitionMembers(gpus, devices, remembered(self._ledger))

    def _is_active(self, partition: int) -> bool:
        return any(listed.id == partition and listed.active for listed in self._listed())

    def _check_members(self, action: ActivateFabricPartition) -> None:
        """All are the VM's, and each has the module id that its driver told when it was taken."""
        if len(action.gpus) != len(action.modules) or not action.gpus:
            raise _differ("as many module ids as GPUs")
        for gpu, module in zip(action.gpus, action.modules, strict=True):
            self._files.check_managed(gpu)
            owner = self._ledger.owner(gpu_key(gpu))
            if owner is None or owner.vm != action.vm or not binding.is_passed_through(self._paths, gpu):
                raise _differ(f"GPU {gpu} is not the VM's")
            observed = GpuRecord.from_text(owner.detail).said
            if observed is None or observed.module_id != module:
                raise _differ(
                    f"GPU {gpu} is module {'unknown' if observed is None else observed.module_id}, not {module}"
                )

    def _in_use(self, gpus: Iterable[str]) -> bool:
        """Cannot tell counts as in use."""
        opened = open_files.open_vfio_devices(self._paths)
        return any(open_files.in_use(self._paths.pci(gpu), opened) is not False for gpu in gpus)


def _differ(details: str) -> Conflict:
    return Conflict(
        "fabric.members_differ",
        "the VM's GPUs are not the fabric partition that was drawn for it",
        hint="were GPUs of the host exchanged? delete the VM and create it again",
        details=details,
    )


def _foreign(partition: int) -> Conflict:
    return Conflict(
        "fabric.foreign",
        f"fabric partition {partition} is active, and we did not activate it for this VM",
        hint="'vgpuctl doctor' shows it; who activated it deactivates it with fmpm -d",
    )


def _not_taken(partition: int, word: str) -> Fatal:
    return Fatal(
        "fabric.refused",
        f"the fabric manager took the request, and partition {partition} is {word} active",
        hint="read its log: journalctl -u nvidia-fabricmanager",
    )
