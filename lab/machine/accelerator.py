# SPDX-License-Identifier: Apache-2.0
"""KVM or emulation: KVM only where the processor promises it and a nested guest really ran."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from lab.commands import run
from lab.errors import LabError
from lab.image.base import Base
from lab.image.cpio import Archive
from lab.image.modules import modules

_SOURCE = Path(__file__).with_name("kvm_probe.c")
_RAN = "probe: nested guest ran"
_PROBE_LIMIT_S = 120.0
PROCESSOR: dict[str, list[str]] = {
    "kvm": ["-machine", "q35,kernel-irqchip=split", "-accel", "kvm", "-cpu", "host"],
    # 5-level paging slows emulation down; the translation cache pays in nested guests
    "tcg": ["-machine", "q35,kernel-irqchip=off", "-accel", "tcg,tb-size=512", "-cpu", "max,la57=off"],
}


def processors(kind: str, wanted: int, nodes: int) -> int:
    """One under TCG, but on a host of several NUMA nodes. The kernel rewrites its own code while it runs (jump labels),
    and emulated processors beside each other now and then still run the breakpoint it wrote meanwhile: it panics,
    rarely when the machine is quiet."""
    return 1 if kind == "tcg" and nodes == 1 else wanted


def processor(kind: str, nodes: int) -> list[str]:
    """On a host of several NUMA nodes all emulated processors take turns in one thread, so that none runs beside."""
    return [word.replace("tcg,", "tcg,thread=single,") if nodes > 1 else word for word in PROCESSOR[kind]]


def clock(kind: str, cpuinfo: str) -> str:
    """What the kernel of a host is told of its clock. An emulated one counts as this machine's processor does, and
    would measure that by timers that are late while this machine is busy: one's time went ten times too fast."""
    if kind == "kvm" or "hypervisor" not in cpuinfo:  # the speed of real hardware may be another in a moment
        return ""
    speed = next((line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("cpu MHz")), "")
    return f" tsc_early_khz={float(speed) * 1000:.0f}" if speed else ""


def has_virtualisation(cpuinfo: str) -> bool:
    """Whether the processor flags promise hardware virtualisation (/dev/kvm alone does not)."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    return bool({"vmx", "svm"} & set(flags.split()))


def accelerator(base: Base, cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """``kvm`` or ``tcg``."""
    return "kvm" if has_virtualisation(cpuinfo.read_text()) and nested_guest_runs(base, "kvm") else "tcg"


def nested_guest_runs(base: Base, kind: str) -> bool:
    """Boots a throw-away machine that runs a virtual machine of its own; seconds."""
    with tempfile.TemporaryDirectory(prefix="vgpu-lab-") as name:
        directory = Path(name)
        (directory / "initrd").write_bytes(_archive(base, directory))
        words = ["-nodefaults", "-display", "none", "-m", "256M", "-no-reboot", "-serial", "stdio"]
        boot: list[str | Path] = [
            "-kernel",
            base.kernel,
            "-initrd",
            directory / "initrd",
            "-append",
            "console=ttyS0 quiet panic=-1",
        ]
        try:
            said = run([*base.emulator(), *PROCESSOR[kind], *words, *boot], limit_s=_PROBE_LIMIT_S)
        except LabError:
            return False
    return _RAN in said


def _archive(base: Base, directory: Path) -> bytes:
    shutil.copy(_SOURCE, directory)
    build = 'mount --bind "$1" "$2/mnt" && exec chroot "$2" gcc -static -O -o /mnt/init /mnt/kvm_probe.c'
    run(["unshare", "--mount", "--propagation", "private", "sh", "-c", build, "sh", directory, base.root])
    archive = Archive()
    archive.directory("dev")
    archive.file("init", (directory / "init").read_bytes(), 0o755)
    for number, (_, content) in enumerate(modules(base.root, base.kernel_version, ["kvm_intel", "kvm_amd"])):
        archive.file(f"modules/{number}.ko", content)
    return archive.pack()
