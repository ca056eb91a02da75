# SPDX-License-Identifier: Apache-2.0
"""A host as the control plane reaches it, and the guests on it: through its agent (adapters/agent_link), Ansible
(adapters/ansible), or a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction, ImageFormat
from orchestrator.core.actions.live_move import LiveMove, MovedVm, MoveLoad
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.drivers.host_drivers import DueReboot, HostDrivers
from orchestrator.core.gpu.vgpu_metadata import Answers, VgpuQuestion
from orchestrator.core.guest.guest import Guest, GuestRun, WantedRoles
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.readiness import HostReadinessFacts
from orchestrator.core.hosts.snapshot import DomainSnapshot, HostSnapshot, Unchanged
from orchestrator.core.ovn import HostInOvn
from orchestrator.core.readings.frame import HostFrame


class ByteStream(Protocol):
    """A two-way stream of raw bytes (console, display, TCP to a guest). Raises OSError once it is closed."""

    def fileno(self) -> int:
        """Readable, for select and event loops, when ``receive`` would not wait: whoever waits holds no thread."""

    def send(self, data: bytes, /) -> int:
        """How many of the bytes were taken; 0: the other side takes none at the moment."""

    def receive(self, size: int, /) -> bytes:
        """b"" at the end."""

    def close(self) -> None: ...


class HostLink(Protocol):
    """Reaches the agents of all hosts. Every method raises Retryable, Fatal or Unknown of core/errors.py:
    Retryable when nothing was sent, Unknown when the answer was lost, and the agent's own error when it answered.
    Safe to call from many threads; calls for different hosts never wait for each other."""

    def observe(self, host: Host) -> HostSnapshot:
        """A fresh observation of the whole host."""

    def look(self, host: Host, known: str) -> HostSnapshot | Unchanged:
        """Like :meth:`observe`, without sending again what has the digest ``known`` (core/wire.py)."""

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        """A fresh observation of one domain by its UUID, far cheaper than the host; None when it is not defined."""

    def things_of(self, host: Host, vm: str) -> tuple[str, ...]:
        """Everything that the host shows of the VM now, for people (attachments/vm_resources); empty: nothing left."""

    def vgpu_compatibility(self, host: Host, questions: Sequence[VgpuQuestion]) -> Answers:
        """What the host's driver says of vGPUs that would go on on GPUs; at most ``MAX_QUESTIONS`` at once."""

    def perform(self, host: Host, action: HostAction, token: FencingToken) -> ActionResult:
        """Do one thing. Idempotent; a stale token is refused with Denied ``agent.stale_token``."""

    def send_image(
        self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: FencingToken
    ) -> ActionResult:
        """Put a base image on the host, checked there by SHA-256; a partial file never becomes visible."""

    def copy_volume(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        copy: VolumeCopy,
        progress: Callable[[int], None],
    ) -> ActionResult:
        """Put a VM's disk, and its UEFI variables, from one host on another, through here: whole and checked there by
        SHA-256, or not at all. What the VM had there under that name is replaced. Refused while anything has the disk
        open. ``progress``: told every few seconds how many bytes have gone; what it raises ends the copy."""

    def read_snapshot(self, host: Host, vm: str, volume: str, token: FencingToken) -> Generator[bytes]:
        """The file of a VM's snapshot in chunks, as it lies on the host: checked by SHA-256 before the last one was
        given, or ``volume.cut`` is raised. Whoever does not read it to its end closes it."""

    def move_vm(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        move: LiveMove,
        progress: Callable[[int, int], None],
    ) -> MovedVm:
        """Take a running VM from one host to another that has all that it needs, without a way through here. Afterwards
        the one has no definition of it, and on the other it waits to be started. As long as the one has its
        definition, it is there, whatever is raised. ``progress``: told every second how many bytes have gone, and how
        many are left; what it raises ends the move."""

    def move_load(self, host: Host, vm: str) -> MoveLoad:
        """What a running VM of the host has to move, measured for a second."""

    def watch(self, host: Host) -> Iterator[dict[str, object] | HostFrame]:
        """Events (domain life cycle, channel closed) and readings until the channel ends."""

    def open_console(self, host: Host, vm: str) -> ByteStream:
        """The VM's serial console."""

    def open_display(self, host: Host, vm: str) -> ByteStream:
        """The VM's screen, keyboard and pointer: RFB (RFC 6143), whose server speaks first. No password is asked."""

    def console_log(self, host: Host, vm: str, most: int) -> bytes:
        """The last bytes that the VM's serial console wrote, at most so many; b"" when nothing was kept."""

    def open_tcp(self, host: Host, vm: str, port: int) -> ByteStream:
        """A TCP connection from the host to the VM's own address."""

    def forget(self, host: Host) -> None:
        """Close pooled connections to this host."""


class Inspector(Protocol):
    """Looks at a host that may have no agent (adapters/ansible). Raises Fatal/Retryable/Unknown."""

    def inspect(self, host: Host, key: str | None) -> HostReadinessFacts:
        """What it has of what it needs; changes nothing. ``key``: private key for a host that is not enrolled."""

    def ovn_changes(self, host: Host, wanted: HostInOvn) -> tuple[str, ...]:
        """What :meth:`Configurator.join_ovn` would do there, for people; changes nothing."""


class Configurator(Protocol):
    """Runs our playbooks against one host (adapters/ansible). Raises Fatal/Retryable/Unknown."""

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        """Install or upgrade agent, service, users and keys; VMs are left alone. ``progress`` gets task titles.

        A host that serves another site is refused with Conflict ``host.other_site`` unless ``take_over``."""

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        """Give the host back as it was before ``install_agent``."""

    def provision(self, host: Host, wanted: HostDrivers, progress: Callable[[str], None]) -> DueReboot | None:
        """Put NVIDIA's driver on the host, in the place of the one that is there. A second time changes nothing.
        Refused while anything uses the driver. Not None: the host reboots first; call it again when it is back.

        Raises ``driver.…`` for what a driver's installation can fail of (docs/reference/errors.md)."""

    def join_ovn(self, host: Host, wanted: HostInOvn, progress: Callable[[str], None]) -> None:
        """Put Open vSwitch and ovn-controller on the host, with a key and the site's certificate for it. A second time
        changes nothing; a host of another OVN is refused before anything is changed (``host.foreign_ovn``)."""


class Guests(Protocol):
    """Guests as roles are run in them."""

    def reach(self, guest: Guest, stop: Callable[[], bool]) -> GuestRun:
        """Log in and do nothing: whether it can be reached, and which host key it shows. ``stop``: asked again and
        again whether the run should be ended."""

    def provision(
        self, guest: Guest, wanted: WantedRoles, progress: Callable[[str], None], stop: Callable[[], bool]
    ) -> GuestRun:
        """Run the roles. A second time changes nothing. ``progress`` gets titles of roles and tasks.

        What went wrong is in the answer: ``guest.…`` (docs/reference/errors.md)."""
