# SPDX-License-Identifier: Apache-2.0
"""What all kinds do alike when they make and remove devices. Always: read, decide, write, read again.

The driver answers a second write of a type, and the clearing of an empty function, with EPERM;
so "already so" is found by reading and never by an errno.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import open_files, pci
from orchestrator.agent.sysfs.write import write
from orchestrator.agent.timing import Timing
from orchestrator.core.errors import Conflict, Denied, Fatal, InvalidInput, Retryable, Unknown
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.protocol import not_on_bus

_BUSY_TRIES = 4
_BUSY_SECONDS = 0.5


class DeviceFiles:
    """Kernel files of devices and who owns each."""

    def __init__(
        self,
        paths: Paths,
        ledger: Ledger,
        timing: Timing,
        type_names: Callable[[], dict[int, str]],
        kernel_write: Callable[[Path, str], None] = write,
    ) -> None:
        """``type_names``: type ids and names as the driver library gives them, for types that sysfs does not name.
        ``kernel_write``: writes a kernel file or raises by sysfs/write.py."""
        self.paths = paths
        self.ledger = ledger
        self.type_names = type_names
        self.timing = timing
        self.write_file = kernel_write

    def write_new(self, file: Path, value: str, key: str, *, exists: Callable[[], bool]) -> None:
        """Write what makes a device; the ledger keeps the owner when it exists or may yet come to exist."""
        try:
            self._retry(file, value, done=exists)
        except Unknown:
            raise
        except (Fatal, Retryable):
            if not exists():
                self.ledger.release(key)
            raise
        if not exists():
            raise Unknown("vgpu.not_seen", "the driver took the request and shows no vGPU", details=str(file))

    def write_gone(self, file: Path, value: str, *, gone: Callable[[], bool]) -> None:
        """Write what removes a device. Whatever the kernel says, gone is gone."""
        try:
            self._retry(file, value, done=gone)
        except (Fatal, Retryable):
            if not gone():
                raise
        if not gone():
            raise Unknown("vgpu.not_gone", "the driver took the request and still shows the vGPU", details=str(file))

    def refusal(self, file: Path, value: str, *, done: Callable[[], bool]) -> str | None:
        """Write what changes a device; what the kernel had against it, for the caller to read whether it is so.

        :raises Unknown: the kernel did not come back"""
        try:
            self._retry(file, value, done=done)
        except (Fatal, Retryable) as error:
            return f"{error.message} ({error.details})"
        return None

    def _retry(self, file: Path, value: str, *, done: Callable[[], bool]) -> None:
        """Try again a few times while the driver is busy (EBUSY), each time after reading."""
        for tries_left in reversed(range(_BUSY_TRIES)):
            try:
                self.write_file(file, value)
                return
            except Retryable:
                if done():
                    return
                if not tries_left:
                    raise
                self.timing.sleep(self.timing.jitter(_BUSY_SECONDS))

    def check_managed(self, address: str) -> None:
        """:raises Denied: ``gpu.not_managed``; :raises Fatal: ``gpu.gone``, ``vgpu.function_gone``
        :raises Conflict: ``gpu.replaced``; :raises Retryable: ``gpu.not_identified``"""
        check_address(address)
        if not self.paths.pci(address).exists():
            gone = sorted(gpu for gpu in self.ledger.managed_gpus() if not self.paths.pci(gpu).exists())
            if address in gone:
                raise Fatal("gpu.gone", f"GPU {address} is not on the host's bus", hint="lspci -D; dmesg")
            # Whose function it would be cannot be told while functions are off: perhaps that of a GPU that is gone.
            raise function_gone(f"{address}; {not_on_bus(gone)}" if gone else address)
        check_ours(self.ledger, pci.physical_gpu(self.paths, address))

    def check_owner(self, key: str, vm: str, shown: str) -> None:
        """:raises Conflict: ``vgpu.foreign``"""
        owner = self.ledger.owner(key)
        if owner is None or owner.vm != vm:
            raise Conflict("vgpu.foreign", "the vGPU there is not this VM's", hint="look at the host", details=shown)

    def owner_of(self, key: str) -> str | None:
        """The VM that the ledger says has it."""
        owner = self.ledger.owner(key)
        return None if owner is None else owner.vm

    def check_unused(self, device: Path, shown: str) -> None:
        """:raises Conflict: ``vgpu.in_use``"""
        if open_files.in_use(device, open_files.open_vfio_devices(self.paths)) is not False:
            raise Conflict("vgpu.in_use", "a process still uses the vGPU", hint="stop the VM first", details=shown)

    def owned_by(self, vm: str, prefix: str) -> list[str]:
        """What of the VM's has a name in the ledger that begins so; without it."""
        return [name for name, owner in self.ledger.owned(prefix).items() if owner.vm == vm]

    def release(self, key: str, vm: str) -> None:
        """Forget an owner whose device is gone, but nobody else's."""
        owner = self.ledger.owner(key)
        if owner is not None and owner.vm == vm:
            self.ledger.release(key)


def check_managed(ledger: Ledger, gpu: str) -> None:
    """:raises Denied: ``gpu.not_managed``; :raises InvalidInput: ``pci.address_invalid``"""
    check_address(gpu)
    if gpu not in ledger.managed_gpus():
        raise Denied(
            "gpu.not_managed",
            f"GPU {gpu} was not given to us",
            hint="'vgpuctl host show HOST' lists the GPUs that were",
        )


def check_ours(ledger: Ledger, gpu: str) -> None:
    """Of what is about to be changed there: it was given to us, and the card is the one that was.

    :raises Denied: ``gpu.not_managed``; :raises InvalidInput: ``pci.address_invalid``
    :raises Conflict: ``gpu.replaced``; :raises Retryable: ``gpu.not_identified``"""
    check_managed(ledger, gpu)
    ledger.cards.check(gpu)


def check_address(address: str) -> None:
    """:raises InvalidInput: ``pci.address_invalid``"""
    if address != parse_pci_address(address):
        raise InvalidInput("pci.address_invalid", f"{address} is not the canonical form of a PCI address")


def function_gone(details: str | None) -> Fatal:
    """A virtual function that cannot be read."""
    return Fatal(
        "vgpu.function_gone",
        "the virtual function cannot be read",
        hint="are virtual functions enabled?",
        details=details,
    )


def no_room(address: str, type_name: str) -> Fatal:
    """The driver takes no more of the type there."""
    return Fatal(
        "vgpu.no_room",
        f"{address} takes no {type_name} now",
        hint="'vgpuctl gpu list --host HOST' tells what fits",
        details="the type is not creatable: the GPU is full, or it carries another size",
    )


def not_as_seen(details: str) -> Conflict:
    """What was to be adopted is another one now."""
    return Conflict(
        "vgpu.differs",
        "the vGPU is not there any more as it was seen",
        hint="look again: 'vgpuctl doctor --host HOST'",
        details=details,
    )


def still_hangs(details: Path) -> Unknown:
    """The driver has not answered a write yet."""
    return Unknown(
        "vgpu.create_hung",
        "the GPU driver has not come back from making the vGPU",
        hint="look at the host's kernel log; the vGPU is taken back when the driver answers again",
        details=str(details),
    )
