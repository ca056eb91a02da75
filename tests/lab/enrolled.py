# SPDX-License-Identifier: Apache-2.0
"""Lab hosts enrolled into a control plane of the test's own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.lab.conftest import LabHost, lab, of_scenario
from tests.lab.product import Product

SMALL = ("--vcpus", "1", "--memory", "192MiB", "--disk", "256MiB")
"""What a guest of the lab is content with."""
SMALLEST = ("--vcpus", "1", "--memory", "64MiB", "--disk", "16MiB")
"""What the guest without an address is content with."""


@dataclass(frozen=True)
class Kind:
    """One way a vGPU reaches a VM and the lab scenario that shows it."""

    attachment: str
    scenario: str
    profile: str
    other_size: str
    instances: int
    """How many of ``profile`` one GPU takes."""
    guest_pci_id: str
    device_action: str
    gpus: int = 1
    """How many of the host's are given to us."""
    first: int = 0
    """Which of them is the first."""
    smallest: bool = False
    """Its guests take no address, so a VM that runs is enough: they boot in seconds."""


MDEV = Kind(
    attachment="mdev",
    scenario="t4",
    profile="GRID T4-1Q",
    other_size="GRID T4-2Q",
    instances=16,
    guest_pci_id="10de:1eb8",
    device_action="MakeVgpu",
)
VENDOR_VFIO = Kind(
    attachment="vendor_vfio",
    scenario="l40s",
    profile="NVIDIA L40S-12Q",
    other_size="NVIDIA L40S-24Q",
    instances=4,
    guest_pci_id="10de:26b9",
    device_action="MakeVgpu",
)
MDEV_ON_VFS = Kind(
    attachment="mdev on virtual functions",
    scenario="a40",
    profile="NVIDIA A40-12Q",
    other_size="NVIDIA A40-24Q",
    instances=4,
    guest_pci_id="10de:2235",
    device_action="MakeVgpu",
)
MIG_BACKED = Kind(
    attachment="mig_backed",
    scenario="a100",
    profile="GRID A100D-1-20C",
    other_size="GRID A100D-1-10C",
    instances=4,
    guest_pci_id="10de:20b5",
    device_action="CreateGpuInstance",
    first=1,
    smallest=True,
)
MIG_MEDIATED = replace(MIG_BACKED, attachment="mig_backed, as mediated devices", first=0)
SHARED_INSTANCES = Kind(
    attachment="mig_backed, several to a GPU instance",
    scenario="rtx-pro-6000",
    profile="rtxpro6000-1-8q",
    other_size="NVIDIA RTX Pro 6000 Blackwell DC-1-12Q",
    instances=12,
    guest_pci_id="10de:2bb5",
    device_action="CreateGpuInstance",
    smallest=True,
)
KINDS = (MDEV, VENDOR_VFIO, MDEV_ON_VFS)
WHOLE = Kind(
    attachment="passthrough",
    scenario="mixed",
    profile="gpu:1",
    other_size="NVIDIA A40-12Q",
    instances=1,
    guest_pci_id="10de:",
    device_action="BindVfio",
    gpus=4,
    smallest=True,
)
"""Two of the host's four share an IOMMU group, so that only parts of them can be given out."""
HGX = Kind(
    attachment="passthrough on an NVSwitch baseboard",
    scenario="h100-hgx",
    profile="gpu:1",
    other_size="gpu:2",
    instances=1,
    guest_pci_id="10de:2330",
    device_action="BindVfio",
    gpus=8,
    smallest=True,
)
"""What a VM has is a partition of the baseboard."""
BARE = Kind(
    attachment="whatever its first driver offers",
    scenario="bare",
    profile="NVIDIA L40S-12Q",
    other_size="GRID T4-4Q",
    instances=4,
    guest_pci_id="10de:26b9",
    device_action="MakeVgpu",
    gpus=2,
    smallest=True,
)
"""A T4 and an L40S without a driver."""
NAMED = {kind.scenario: kind for kind in KINDS}
"""What tests ask for."""
THE_FIRST = [
    MDEV.scenario,
    *(pytest.param(kind.scenario, marks=pytest.mark.soak) for kind in KINDS if kind is not MDEV),
]
"""Where the kind makes no difference: the others are in ``make soak``."""


_RESTORED_S = 600
_BOOT_AGAIN = """
tty=$(virsh ttyconsole {vm}); timeout {limit_s} cat "$tty" > /run/said & reader=$!; sleep 1; virsh -q reset {vm}
for second in $(seq {limit_s}); do sed -n '/00:00.0/,$p' /run/said | grep -q 'vgpu-guest ready' && break; sleep 1; done
kill $reader; cat /run/said; rm /run/said"""
"""It may have been booting already: what counts begins with its first line."""


@dataclass(frozen=True)
class Enrolled:
    """A control plane that manages one GPU of one lab host."""

    product: Product
    kind: Kind
    host: LabHost
    gpu: str
    public_key: str

    @property
    def profile(self) -> str:
        return self.kind.profile

    @property
    def other_size(self) -> str:
        return self.kind.other_size

    @property
    def instances(self) -> int:
        return self.kind.instances

    @property
    def guest_pci_id(self) -> str:
        return self.kind.guest_pci_id

    @property
    def device_action(self) -> str:
        return self.kind.device_action

    @property
    def name(self) -> str:
        return self.host.name

    def shell(self, command: str) -> str:
        return self.host.run(command)

    def request(self, name: str, *options: str) -> tuple[str, ...]:
        """The command line that asks for a small VM."""
        return self.request_of(name, self.profile, *options)

    def request_of(self, name: str, profile: str, *options: str) -> tuple[str, ...]:
        """The same with another profile."""
        size = SMALLEST if self.kind.smallest else SMALL
        return ("create-vm", name, "--profile", profile, "--image", "guest", *size, *options)

    def running_since(self, name: str) -> str:
        """The process of a VM's QEMU, which a restart would change."""
        return self.shell(f"pgrep -f {self.product.json('show-vm', name)['id']}").split()[0]

    def is_confined(self, name: str) -> bool:
        """Whether a running VM's QEMU is under a profile of AppArmor's that is its alone."""
        vm = self.product.json("show-vm", name)["id"]
        label = self.shell(f"cat /proc/{self.running_since(name)}/attr/current").strip()
        return label == f"libvirt-{vm} (enforce)"

    def in_guest(self, name: str, *command: str, limit_s: float = 200) -> str:
        """What a command prints in a guest, when it answers. A lease outlives the guest's last run, so its address can
        be known before it is back; and the host's filter opens for an address only after the lease, which takes seconds
        under emulation.
        """
        deadline = time.monotonic() + limit_s
        while (outcome := self.product.run("ssh", name, "--", *command)).code != 0:
            assert time.monotonic() < deadline, outcome.err
            time.sleep(3)
        return outcome.out

    def guest_says(self, name: str, limit_s: int = 120) -> str:
        """What the smallest guest prints when it boots: a line for each PCI function that it sees."""
        vm = self.product.json("show-vm", name)["id"]
        return self.shell(_BOOT_AGAIN.format(vm=vm, limit_s=limit_s))

    def restored_after_a_hard_reset(self, *names: str) -> None:
        """The host's power is cut with no controller, and its agent brings these VMs back; it is waited for."""
        vms = [str(self.product.json("show-vm", name)["id"]) for name in names]
        self.product.ok("server", "stop")
        lab("reboot", self.name, "--power-cut")
        deadline = time.monotonic() + _RESTORED_S
        while not set(vms) <= set(self.shell("virsh -q list --uuid").split()):
            assert time.monotonic() < deadline, self.shell("journalctl -u vgpuctl-agent -b --no-pager | tail")
            time.sleep(3)

    def clear(self) -> None:
        """Delete every VM there is."""
        for vm in self.product.json("list-vms"):
            self.product.ok("delete-vm", str(vm["name"]))


def _gpus(host: LabHost) -> list[str]:
    listed = host.run("lspci -D -d 10de::0302 | cut -d' ' -f1")
    return sorted(line for line in listed.split() if line.endswith(":00.0"))


def words_to_add(host: LabHost, gpus: Sequence[str] = ()) -> tuple[str, ...]:
    """The command line that enrols a host; without ``gpus`` all that nothing uses are given to us."""
    words = (
        "host", "add", host.name, "--address", host.address, "--port", str(host.port), "--user", host.user,
        "--provisioning-key", host.key_file, "--host-key-fingerprint", host.host_key_fingerprint,
    )  # fmt: skip
    return (*words, "--gpus", ",".join(gpus)) if gpus else words


def add_host(product: Product, kind: Kind, host: LabHost) -> str:
    """``host add`` with the kind's number of GPUs, the first of which it is, and the guest image."""
    gpus = _gpus(host)[kind.first :][: kind.gpus]
    product.ok(*words_to_add(host, gpus))
    options = ("--smallest",) if kind.smallest else ()
    product.ok("image", "add", "guest", lab("guest-image", *options).strip())
    return gpus[0]


@contextmanager
def enrol(
    kind: Kind, host: LabHost, state: Path, offerings: str = "", guests_boot_within_s: int | None = None
) -> Iterator[Enrolled]:
    """``host add`` with the guest image, and ``host remove`` at the end.

    ``offerings``: a file of them, for this test alone. ``guests_boot_within_s``: None is the product's own, or no time
    for guests that take no address.
    """
    state.mkdir(parents=True, exist_ok=True)
    settings = {"VGPUCTL_VCPU_OVERCOMMIT": "32"}  # an emulated host has one processor
    limit = 0 if kind.smallest and guests_boot_within_s is None else guests_boot_within_s
    product = Product(state, settings | ({} if limit is None else {"VGPUCTL_GUEST_SEEN_SECONDS": str(limit)}))
    key = state / "guest_key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    try:
        gpu = add_host(product, kind, host)
        if offerings:
            (state / "offerings.yaml").write_text(offerings)
            product.ok("profile", "add", str(state / "offerings.yaml"))
        enrolled = Enrolled(product=product, kind=kind, host=host, gpu=gpu, public_key=f"{key}.pub")
        yield enrolled
        if product.json("host", "list"):  # a test may have given it up
            enrolled.clear()
            product.ok("host", "remove", host.name)
    finally:
        product.close()


@contextmanager
def enrol_alone(
    kind: Kind, state: Path, offerings: str = "", guests_boot_within_s: int | None = None
) -> Iterator[Enrolled]:
    """As :func:`enrol`, with a host that comes up for it and ends with it."""
    with (
        contextmanager(of_scenario)(kind.scenario) as host,
        enrol(kind, host, state, offerings, guests_boot_within_s) as one,
    ):
        yield one
