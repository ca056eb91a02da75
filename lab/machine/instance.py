# SPDX-License-Identifier: Apache-2.0
"""One lab host on this machine: its directory, its QEMU process, its ssh door."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.commands import run, start
from lab.errors import LabError
from lab.image.base import Base
from lab.machine.keys import known_host_line, sha256_fingerprint
from lab.machine.processes import Process, identify
from lab.machine.qemu import Machine, arguments

ADDRESS = "127.0.0.1"
_BANNER_LIMIT_S = 5.0
_WORDS = "command.json"
"""What its QEMU was started with."""
_LONGEST_CONTROL_PATH = 85
"""Bytes: ssh appends 17 to it, and the address of a unix socket ends at 107 (unix(7))."""
# Says "ready" and the boot's id when NVIDIA's surface is loaded and libvirt answers, else what is wrong.
_READY = (
    "for unit in vgpu-lab libvirtd; do systemctl cat $unit >/dev/null 2>&1 || continue; "
    "n=0; until systemctl is-active -q $unit; do n=$((n+1)); "
    "if [ $n -gt 400 ] || systemctl is-failed -q $unit; then systemctl status --no-pager $unit; exit 0; fi; "
    "sleep 0.5; done; done; virsh -q version >/dev/null && echo ready $(cat /proc/sys/kernel/random/boot_id)"
)


@dataclass(frozen=True)
class Instance:
    """A host that was started; read back from its directory by later commands."""

    name: str
    directory: Path
    process: Process
    ssh_port: int
    index: int
    accelerator: str
    scenario: str
    """The scenario's text as JSON, to tell whether ``up`` asks for something else."""

    @property
    def console(self) -> Path:
        return self.directory / "console.log"

    @property
    def _control(self) -> Path:
        return self.directory / "ssh"

    @property
    def public_host_key(self) -> str:
        return (self.directory / "host_key.pub").read_text().strip()

    def save(self) -> None:
        record = {
            "name": self.name, "pid": self.process.pid, "started": self.process.started,
            "ssh_port": self.ssh_port, "index": self.index, "accelerator": self.accelerator,
            "scenario": self.scenario,
        }  # fmt: skip
        (self.directory / "host.json").write_text(json.dumps(record))

    def running(self) -> bool:
        return self.process.alive()

    def ssh(self, key: Path, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        known = self.directory / "known_hosts"
        return [
            "ssh", "-F", "none", "-q", "-i", str(key), "-p", str(self.ssh_port), "-o", "IdentitiesOnly=yes",
            # the default key exchange is a second's work for an emulated processor
            "-o", "KexAlgorithms=curve25519-sha256",
            "-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={known}", *options,
            f"root@{ADDRESS}", *command,
        ]  # fmt: skip

    def shared(self) -> tuple[str, ...]:
        """Options by which commands share one connection: each handshake is seconds for an emulated processor."""
        if len(os.fsencode(self._control)) > _LONGEST_CONTROL_PATH:
            return ()
        return ("-o", "ControlMaster=auto", "-o", f"ControlPath={self._control}", "-o", "ControlPersist=60")

    def hang_up(self, key: Path) -> None:
        """End the shared connection, which would wait for a host that goes down under it."""
        with suppress(LabError):  # there is none
            run(self.ssh(key, options=("-S", str(self._control), "-O", "exit")))

    def reset(self) -> None:
        """As when its power is cut and comes back. Raises LabError when its QEMU does not answer."""
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(_BANNER_LIMIT_S)
                os.chdir(self.directory)  # the path may be longer than a socket address can hold
                line.connect("qmp.sock")
                line.recv(4096)
                for word in ("qmp_capabilities", "system_reset"):
                    line.sendall(json.dumps({"execute": word}).encode())
                    line.recv(4096)
        except OSError as error:
            raise LabError(f"host {self.name} cannot be reset: {error.strerror}", f"log: {self.console}") from error

    def wait_ready(self, key: Path, limit_s: float, old_boot: str = "") -> str:
        """The boot's id once the host is ready. Raises LabError with the end of the console log."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if not self.running():
                raise self._failed("its QEMU ended")
            if _greets(self.ssh_port):
                boot = self._ask(key, deadline)
                if boot not in {"", old_boot}:  # empty: the connection broke, as when the host goes down
                    return boot
            time.sleep(0.5)
        raise self._failed(f"not ready after {limit_s:.0f} s")

    def _ask(self, key: Path, deadline: float) -> str:
        """Nothing when the connection broke; raises when the host says that it will never be ready."""
        limit = max(5.0, deadline - time.monotonic())
        try:
            answer = run(
                self.ssh(key, _READY, options=("-o", "BatchMode=yes", "-o", "ConnectTimeout=60")), limit_s=limit
            )
        except LabError:
            return ""
        state, _, rest = answer.strip().partition(" ")
        if state != "ready":
            raise self._failed(answer.strip())
        return rest

    def _failed(self, reason: str) -> LabError:
        lines = [*_tail(self.directory / "qemu.log", 5), *_tail(self.console, 25)]
        return LabError(
            f"host {self.name}: {reason}\n" + "\n".join(f"  | {line}" for line in lines), f"log: {self.console}"
        )

    def status(self, key: Path) -> dict[str, Any]:
        public = self.public_host_key
        return {
            "name": self.name, "address": ADDRESS, "port": self.ssh_port, "user": "root", "key_file": str(key),
            "host_key_fingerprint": sha256_fingerprint(public),
            "known_host_line": known_host_line(ADDRESS, self.ssh_port, public),
            "state": self._state(), "console_log": str(self.console),
        }  # fmt: skip

    def _state(self) -> str:
        if not self.running():
            return "stopped"
        return "running" if _greets(self.ssh_port) else "starting"

    def switch_on(self) -> Instance:
        """Starts its QEMU again, as it was started, on the disk that it has. Raises LabError while it runs."""
        if self.running():
            raise LabError(f"host {self.name} runs already", "'reboot' has it boot again")
        words = json.loads((self.directory / _WORDS).read_text())
        instance = replace(self, process=_begun(self.directory, words))
        instance.save()
        return instance

    def remove(self) -> None:
        """Ends the machine and forgets all of it."""
        self.process.end()
        shutil.rmtree(self.directory)


def _greets(port: int) -> bool:
    """Whether an ssh server answers; the forwarded port alone accepts connections before the host has booted."""
    try:
        with socket.create_connection((ADDRESS, port), timeout=_BANNER_LIMIT_S) as door:
            return door.recv(4) == b"SSH-"
    except OSError:
        return False


def _tail(file: Path, lines: int) -> list[str]:
    if not file.exists():
        return []
    text = file.read_bytes()[-8192:].decode(errors="replace")
    shown = ("".join(sign for sign in line if sign.isprintable()) for line in text.splitlines())
    return [line for line in shown if line.strip()][-lines:]


def load(directory: Path) -> Instance:
    """Raises LabError for a record that is damaged or of another version of the lab."""
    file = directory / "host.json"
    try:
        record = json.loads(file.read_text())
        process = Process(record["pid"], record["started"])
        rest = [record[name] for name in ("ssh_port", "index", "accelerator", "scenario")]
        return Instance(record["name"], directory, process, *rest)
    except (ValueError, KeyError) as error:
        raise LabError(f"{file} is damaged", "end the QEMU that runs in that directory, then remove it") from error


def launch(base: Base, machine: Machine, index: int, scenario: str) -> Instance:
    """Starts the machine out of a directory that already holds its initrd, disk and keys."""
    directory = machine.directory
    (directory / "scenario.json").write_text(json.dumps(machine.host.payload()))
    public = (directory / "host_key.pub").read_text()
    (directory / "known_hosts").write_text(known_host_line(ADDRESS, machine.ssh_port, public) + "\n")
    words = [str(word) for word in (*base.emulator(), *arguments(machine))]
    (directory / _WORDS).write_text(json.dumps(words))
    instance = Instance(
        machine.host.name, directory, _begun(directory, words), machine.ssh_port, index, machine.accelerator, scenario
    )
    instance.save()
    return instance


def _begun(directory: Path, words: list[str]) -> Process:
    return identify(start(words, log=directory / "qemu.log", directory=directory))
