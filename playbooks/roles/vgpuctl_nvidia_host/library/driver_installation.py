# SPDX-License-Identifier: Apache-2.0
"""Swaps NVIDIA's driver: services stopped, modules unloaded, the new one installed, loaded, checked, services back.

Runs on the host, under any Python that Ansible supports there. A driver that is loaded in the wanted version is left
alone. Whatever happens, what was stopped is started again, so that the host's agent can be asked; but for a host that
reboots, because a module stays in use whatever is stopped, or into a newer kernel that waits.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import uuid
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: driver_installation
short_description: Keeps NVIDIA's driver and fabric manager in the given version
description: Refuses while anything uses the driver. A failure begins with its code, as C([driver.module_busy] text).
author: vgpuctl
options:
  directory: {description: Where the bundles lie on the host., type: path, required: true}
  driver: {description: "The driver's bundle: sha256, version and format.", type: dict, required: true}
  fabric_manager: {description: "The fabric manager's, for hosts with NVSwitches; may be empty.", type: dict}
  reboot: {description: Whether the host may reboot where nothing else helps., type: bool, default: false}
  root: {description: Below which sysfs and devices are looked for., type: path, default: /}
"""

SERVICES = (
    "nvidia-fabricmanager.service",
    "nvidia-dcgm.service",
    "nvidia-persistenced.service",
    "nvidia-vgpu-mgr.service",
    "nvidia-vgpud.service",
    "vgpuctl-agent.service",
)
"""In the order in which they are stopped; the agent is among them, as it holds NVML open."""
STARTED = ("nvidia-vgpud.service", "nvidia-vgpu-mgr.service", "nvidia-persistenced.service")
"""Of the new driver, where it has them."""
MODULES = ("nvidia_vgpu_vfio", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
"""Those that use others first."""
SWAPPED = "run/vgpuctl-driver"
"""Says that what the old driver had is gone, as a reboot does; the agent then puts it back."""
LOCK = "run/vgpuctl-driver.lock"
"""Held as long as this runs: a run whose controller died goes on here, and the next one waits for its end."""
HOLD = "etc/modprobe.d/vgpuctl-swap.conf"
"""While it is there no module of the driver is loaded, whoever asks: so the next boot has none of them in use."""
BOOT = "proc/sys/kernel/random/boot_id"
REBOOT = ("systemd-run", "--on-active=2", "--timer-property=AccuracySec=100ms", "systemctl", "reboot")
"""A moment later, so that this can still be told."""
LOG = "var/log/nvidia-installer.log"
TAIL = 2000
CAUSES = (
    (
        "driver.secure_boot",
        r"key was rejected|required key not available|secure boot|module verification failed",
        "the kernel takes no module that is not signed with a key it knows",
    ),
    (
        "driver.dkms_failed",
        r"dkms|bad return status for module build|error making modules|unable to build the nvidia",
        "DKMS could not build the module",
    ),
    ("driver.headers_missing", r"kernel (source|headers)|linux-headers", "the kernel's headers are missing"),
    ("host.package_lock", r"could not get lock|frontend lock|another process using it", "another one is at work"),
)
"""What an installer's words mean, and how an operator is told; the first that is found."""


class Failed(Exception):
    """``code``: of the error that the operator gets."""

    def __init__(self, code: str, text: str, output: str = "") -> None:
        super().__init__(text)
        self.code, self.output = code, output


class Installation:
    """Brings one host to the wanted driver and remembers what that took."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = Path(module.params["root"])
        self.directory = Path(module.params["directory"])
        self.changes: list[str] = []
        self.stopped: list[str] = []
        self.due: dict[str, str] | None = None
        """Told of a reboot: why, and the boot that ends with it."""
        self.mark = self.directory / "reboot.json"
        """Outlives the reboot that it asks for, and says which boot that was."""
        self.rebooted = False
        """For this swap, before this run."""

    def run(self, *argv: str) -> tuple[int, str]:
        """Exit code, and all that was said."""
        code, out, err = self.module.run_command(list(argv))
        return int(code), f"{out}{err}"

    def loaded(self) -> str | None:
        """Version of the module that is loaded; None: it is not."""
        version = _text(self.root / "sys/module/nvidia/version")
        if version:
            return version
        found = re.search(r"Module(?: for \S+)?\s+(\d{3}[\d.]+)", _text(self.root / "proc/driver/nvidia/version"))
        return found[1] if found else None

    def file_of(self, bundle: dict[str, str]) -> str:
        path = self.directory / f"{bundle['sha256']}.{bundle['format']}"
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        if digest.hexdigest() != bundle["sha256"]:
            raise Failed("bundle.damaged", f"{path} is not what was sent")
        return str(path)

    def has_switches(self) -> bool:
        """NVSwitches are NVIDIA's PCI bridges of the class "other"."""
        devices = (self.root / "sys/bus/pci/devices").glob("*")
        return any(_text(one / "vendor") == "0x10de" and _text(one / "class").startswith("0x0680") for one in devices)

    def stop_services(self) -> None:
        for name in SERVICES:
            if self.run("systemctl", "is-active", "--quiet", name)[0] == 0:
                self.stopped.append(name)
                self.run("systemctl", "stop", name)

    def start_services(self) -> None:
        """Those that ran before, in the other order; a driver that brought more of them has those started too."""
        for name in dict.fromkeys((*STARTED, *reversed(self.stopped))):
            if name in self.stopped or self.run("systemctl", "cat", name)[0] == 0:
                self.run("systemctl", "start", name)

    def unload(self) -> None:
        """Virtual functions first: they are the driver's. When one module stays the others come back, and the agent
        is told to put the functions back.

        :raises Failed: ``driver.module_busy``
        """
        (self.root / SWAPPED).write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        manage = self.root / "usr/lib/nvidia/sriov-manage"
        if manage.exists():
            self.run(str(manage), "-d", "ALL")
        gone: list[str] = []
        for name in MODULES:
            if (self.root / "sys/module" / name).is_dir():
                code, said = self.run("modprobe", "-r", name)
                if code == 0:
                    gone.append(name)
                else:
                    for earlier in reversed(gone):
                        self.run("modprobe", earlier)
                    users = ", ".join(self.users()) or "somebody that shows no open file"
                    also = ", also after a reboot" if self.rebooted else ""
                    raise Failed("driver.module_busy", f"module {name} is in use by {users}{also}", said)

    def users(self) -> list[str]:
        """Processes that have a file of the driver's open."""
        found = set()
        for link in (self.root / "proc").glob("[0-9]*/fd/*"):
            try:
                target = str(link.readlink())
            except OSError:
                continue
            if target.startswith("/dev/nvidia"):
                pid = link.parts[-3]
                found.add(f"{_text(link.parents[1] / 'comm')} ({pid})")
        return sorted(found)

    def boot(self) -> str:
        return _text(self.root / BOOT)

    def after_reboot(self) -> bool:
        """Whether what is asked here may be done on this boot: not on one that is to end. What kept modules away during
        the reboot goes."""
        try:
            asked = json.loads(self.mark.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return True
        if asked["boot_id"] == self.boot():
            self.ask_reboot(asked["why"], hold=asked["hold"])
            return False
        self.rebooted = True
        self.forget_reboot()
        return True

    def forget_reboot(self) -> None:
        (self.root / HOLD).unlink(missing_ok=True)
        self.mark.unlink(missing_ok=True)

    def may_reboot(self) -> bool:
        """Once for a swap; VMs that run here, of whomever, are not ended by it."""
        return self.module.params["reboot"] and not self.rebooted and not self.vms()

    def vms(self) -> int:
        return sum(_text(one).startswith("qemu-") for one in (self.root / "proc").glob("[0-9]*/comm"))

    def ask_reboot(self, why: str, *, hold: bool) -> None:
        """``hold``: no module of the driver is loaded at the next boot.

        :raises Failed: ``host.reboot_refused``
        """
        due = {"why": why, "boot_id": self.boot()}
        self.mark.write_text(json.dumps({**due, "hold": hold}), encoding="utf-8")
        if hold:
            lines = [f"blacklist {name}\ninstall {name} /bin/false\n" for name in MODULES]
            (self.root / HOLD).parent.mkdir(parents=True, exist_ok=True)
            (self.root / HOLD).write_text(
                "# By vgpuctl, until the next boot's swap.\n" + "".join(lines), encoding="ascii"
            )
        code, said = self.run(*REBOOT)
        if code != 0:
            self.forget_reboot()
            raise Failed("host.reboot_refused", f"the host does not reboot, and has to: {why}", said)
        self.due = due

    def newer_kernel(self, version: str) -> str | None:
        """The one that the next boot begins, if it is newer than the one that runs and the driver was built for it."""
        running, following = self.run("uname", "-r")[1].strip(), self.next_kernel()
        if following is None or _kernel_key(following) <= _kernel_key(running):
            return None
        code, said = self.run("modinfo", "-k", following, "-F", "version", "nvidia")
        return following if code == 0 and said.strip() == version else None

    def next_kernel(self) -> str | None:
        """As grubby tells it, or the link that Debian and Ubuntu keep to it; None: cannot tell."""
        if shutil.which("grubby"):
            path = Path(self.run("grubby", "--default-kernel")[1].strip())
        else:
            links = (self.root / "vmlinuz", self.root / "boot/vmlinuz")
            path = next((link.readlink() for link in links if link.is_symlink()), Path())
        return path.name.partition("vmlinuz-")[2] or None

    def check_headers(self) -> None:
        kernel = self.run("uname", "-r")[1].strip()
        if not (self.root / "lib/modules" / kernel / "build").exists():
            raise Failed("driver.headers_missing", f"there are no headers of kernel {kernel} to build the module with")

    def install(self, bundle: dict[str, str]) -> None:
        """:raises Failed: as CAUSES say, ``driver.install_failed``"""
        path = self.file_of(bundle)
        dkms = ["--dkms"] if shutil.which("dkms") else []
        words = {
            "run": ["sh", path, "--silent", *dkms],
            "deb": ["apt-get", "-o", "DPkg::Options::=--force-confold", "install", "--yes", "--allow-downgrades", path],
            "rpm": ["dnf", "install", "--assumeyes", "--allowerasing", "--disablerepo=*", path],
        }
        code, said = self.run(*words[bundle["format"]])
        if code != 0:
            text = f"{said}\n{_text(self.root / LOG)[-TAIL:]}"
            cause, why = _cause(text, "driver.install_failed", f"exit code {code}")
            raise Failed(cause, f"the installer of {bundle['version']} failed: {why}", text)
        self.changes.append(bundle["version"])

    def load(self, version: str) -> None:
        """:raises Failed: ``driver.secure_boot``, ``driver.not_loaded``, ``driver.version_differs``"""
        code, said = self.run("modprobe", "nvidia")
        if code != 0:
            cause, why = _cause(said, "driver.not_loaded", said.strip()[-200:], only="driver.secure_boot")
            raise Failed(cause, f"module nvidia of {version} does not load: {why}", said)
        if self.run("modinfo", "nvidia-vgpu-vfio")[0] == 0:
            self.run("modprobe", "nvidia-vgpu-vfio")
        found = self.loaded()
        if found != version:
            raise Failed("driver.version_differs", f"the module that is loaded is {found}, not {version}")

    def keep_fabric_manager(self, bundle: dict[str, str] | None, version: str) -> None:
        """:raises Failed: ``driver.fabric_manager_missing``, ``driver.fabric_manager_differs``"""
        if not self.has_switches():
            return
        if self.fabric_version() != version:
            if not bundle:
                raise Failed("driver.fabric_manager_missing", "the host has NVSwitches and no fabric manager is locked")
            self.install(bundle)
        found = self.fabric_version()
        if found != version:
            raise Failed("driver.fabric_manager_differs", f"the fabric manager is {found}, the driver {version}")
        self.run("systemctl", "enable", "--now", "nvidia-fabricmanager.service")

    def fabric_version(self) -> str | None:
        found = re.search(r"\d{3}(?:\.\d+)+", self.run("nv-fabricmanager", "--version")[1])
        return found[0] if found else None

    def keep(self) -> None:
        with (self.root / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.after_reboot():
                self.bring()

    def bring(self) -> None:
        wanted = self.module.params["driver"]
        if self.loaded() != wanted["version"]:
            self.file_of(wanted)
            self.check_headers()
            self.stop_services()
            try:
                self.swap(wanted)
            finally:
                if self.due is None:
                    self.start_services()
        if self.due is None:
            self.keep_fabric_manager(self.module.params["fabric_manager"], wanted["version"])

    def swap(self, wanted: dict[str, str]) -> None:
        """Or as far as the reboot that it needs."""
        try:
            self.unload()
        except Failed as busy:
            if not self.may_reboot():
                vms = self.vms()
                raise Failed(busy.code, f"{busy}; {vms} VMs run there" if vms else str(busy), busy.output) from busy
            self.ask_reboot(str(busy), hold=True)
            return
        self.install(wanted)
        self.load(wanted["version"])
        kernel = self.newer_kernel(wanted["version"])
        if kernel is not None and self.may_reboot():
            self.ask_reboot(f"kernel {kernel} is installed and does not run yet", hold=False)


def _text(path: Path) -> str:
    """Empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _kernel_key(name: str) -> list[int]:
    """6.12.9 before 6.12.10."""
    return [int(part) for part in re.findall(r"\d+", name)]


def _cause(said: str, otherwise: str, words: str, only: str | None = None) -> tuple[str, str]:
    """Code and words for what was said."""
    for code, pattern, why in CAUSES:
        if only in {None, code} and re.search(pattern, said, re.IGNORECASE):
            return code, why
    return otherwise, words


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "driver": {"type": "dict", "required": True},
            "fabric_manager": {"type": "dict"},
            "reboot": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
        }
    )
    module.run_command_environ_update = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
    host = Installation(module)
    try:
        host.keep()
    except Failed as failed:
        module.fail_json(msg=f"[{failed.code}] {failed}", stderr=failed.output[-TAIL:], changes=host.changes)
    if host.due is not None:
        module.exit_json(changed=True, changes=host.changes, reboot=host.due)
    module.exit_json(changed=bool(host.changes), changes=host.changes)


if __name__ == "__main__":
    main()
