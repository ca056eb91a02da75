# SPDX-License-Identifier: Apache-2.0
"""All hosts of this lab together: up, down, status."""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lab import requirements
from lab.commands import run
from lab.errors import LabError
from lab.guest.build import guest_image
from lab.guest.debian import debian_image
from lab.guest.smallest import smallest_image
from lab.image.base import Base, base
from lab.image.capabilities import known, remember
from lab.image.initramfs import SETTINGS, boot_archive, overlay_archive
from lab.image.payload import DRIVER, payload
from lab.machine.accelerator import accelerator, clock
from lab.machine.identity import identity
from lab.machine.instance import Instance, launch, load
from lab.machine.keys import key_pair
from lab.machine.qemu import Machine
from lab.places import Places
from lab.scenario import NO_DRIVER, Host

Say = Callable[[str], None]
GUESTS: dict[str, Callable[[Base, Path], Path]] = {
    "small": guest_image,
    "smallest": smallest_image,
    "counting": partial(smallest_image, name="counting"),
    "debian": debian_image,
}
"""How each guest image is built."""
BOOT_LIMIT_S = 420.0
_OVERHEAD_MIB = 300


@dataclass(frozen=True)
class Fleet:
    places: Places
    say: Say

    def instances(self) -> list[Instance]:
        return [load(file.parent) for file in sorted((self.places.state / "hosts").glob("*/host.json"))]

    def instance(self, name: str) -> Instance:
        found = [instance for instance in self.instances() if instance.name == name]
        if not found:
            names = ", ".join(instance.name for instance in self.instances())
            raise LabError(f"no host {name} is up", f"there are: {names}" if names else "bring it up first")
        return found[0]

    def status(self) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda instance: instance.status(self.places.key), self.instances()))

    def up(self, hosts: Sequence[Host]) -> list[Instance]:
        """Starts what does not run yet, all at once, and waits until every host is ready."""
        with self._alone():
            running = self._running(hosts)
            missing = [host for host in hosts if host.name not in running]
            started = self._start(missing) if missing else []
        wanted = [running[host.name] for host in hosts if host.name in running] + started
        with ThreadPoolExecutor(len(wanted)) as pool:
            waits = [pool.submit(instance.wait_ready, self.places.key, BOOT_LIMIT_S) for instance in wanted]
        failures = [error for error in (wait.exception() for wait in waits) if error is not None]
        if failures:
            raise failures[0]
        if started:
            first = started[0]
            image = base(self.places.cache, self.say)
            remember(image, first.accelerator, lambda line: run(first.ssh(self.places.key, line)))
        return wanted

    def switch_on(self, name: str) -> Instance:
        """A host whose QEMU ended, with the disk that it has."""
        with self._alone():
            return self.instance(name).switch_on()

    def guest_image(self, kind: str = "small") -> Path:
        """One of :data:`GUESTS`; built when its inputs changed."""
        with self._alone():
            return GUESTS[kind](base(self.places.cache, self.say), self.places.cache)

    def down(self, names: Sequence[str] = ()) -> None:
        """Ends the named hosts, or all, and removes all state of theirs."""
        with self._alone():
            ended = [self.instance(name) for name in names] or self.instances()
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(Instance.remove, ended))
            if self.instances():
                return
            shutil.rmtree(self.places.state / "hosts", ignore_errors=True)
            for name in ("key", "key.pub", "lan_port"):
                (self.places.state / name).unlink(missing_ok=True)
        (self.places.state / "lock").unlink(missing_ok=True)

    def _running(self, hosts: Sequence[Host]) -> dict[str, Instance]:
        """Wanted hosts that run already. What is left of hosts that do not run is removed."""
        wanted = {host.name: _text(host) for host in hosts}
        running = {}
        for instance in self.instances():
            if not instance.running():
                instance.remove()
            elif instance.name in wanted and instance.scenario != wanted[instance.name]:
                raise LabError(f"host {instance.name} runs with another scenario", "bring the lab down first")
            else:
                running[instance.name] = instance
        return running

    def _start(self, hosts: Sequence[Host]) -> list[Instance]:
        self._check(hosts)
        image = base(self.places.cache, self.say)
        kind = accelerator(image)
        trees = [SETTINGS, *payload(self.places.project, self.places.cache, image), *known(image, kind)]
        boot = boot_archive(image)
        used = {instance.name: instance.index for instance in self.instances()}
        numbers = iter(number for number in range(200) if number not in used.values())
        peers = {**used, **{host.name: next(numbers) for host in hosts}}
        self.say(f"starting {', '.join(host.name for host in hosts)} ({kind})")
        started = []
        for host in hosts:
            directory = self._prepare(host, image, boot, trees, peers)
            port = host.ssh_port or _free_port()
            told = clock(kind, Path("/proc/cpuinfo").read_text())
            machine = Machine(host, directory, image.kernel, kind, port, self._lan_port(), told)
            started.append(launch(image, machine, peers[host.name], _text(host)))
        return started

    def _check(self, hosts: Sequence[Host]) -> None:
        requirements.require_programs()
        available = requirements.available_memory_mib(Path("/proc/meminfo").read_text())
        requirements.require_memory(sum(host.memory_mib + _OVERHEAD_MIB for host in hosts), available)
        requirements.require_disk(self.places.cache, requirements.BUILD_DISK_MIB)
        requirements.require_disk(self.places.state, 4096 * len(hosts))
        requirements.require_free_ports(host.ssh_port for host in hosts if host.ssh_port)

    def _prepare(self, host: Host, image: Base, boot: bytes, trees: list[Path], peers: dict[str, int]) -> Path:
        directory = self.places.state / "hosts" / host.name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        host_key = directory / "host_key"
        key_pair(host_key, host.name)
        login = key_pair(self.places.key, "vgpu-lab")
        files = identity(host.name, peers[host.name], peers, host_key, login)
        without = DRIVER if host.driver_version == NO_DRIVER else ()
        (directory / "initrd").write_bytes(boot + overlay_archive(trees, files, without))
        run([
            *image.tool("qemu-img"), "create", "-q", "-f", "qcow2", "-b", image.disk, "-F", "raw",
            directory / "disk.qcow2",
        ])  # fmt: skip
        return directory

    def _lan_port(self) -> int:
        """UDP port of the private network; one for the life of the lab, so that later hosts join it."""
        file = self.places.state / "lan_port"
        if not file.exists():
            file.write_text(f"{_free_port(socket.SOCK_DGRAM)}\n")
        return int(file.read_text())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.places.state.mkdir(parents=True, exist_ok=True)
        self.places.cache.mkdir(parents=True, exist_ok=True)
        with (self.places.state / "lock").open("w") as state, (self.places.cache / "lock").open("w") as cache:
            fcntl.flock(state, fcntl.LOCK_EX)
            fcntl.flock(cache, fcntl.LOCK_EX)
            yield


def _text(host: Host) -> str:
    machine = {"memory_mib": host.memory_mib, "vcpus": host.vcpus, "nics": [asdict(nic) for nic in host.nics]}
    return json.dumps(host.payload() | machine, sort_keys=True)


def _free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(type=kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port
