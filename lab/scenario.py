# SPDX-License-Identifier: Apache-2.0
"""Scenario files: which hosts there are, with which GPUs.

A file is YAML: ``hosts``, a list of hosts with ``name``, ``driver_version`` and ``gpus``; the fields are those of
Host and Gpu below. Every mistake is one line ``file:line: reason``.
"""

from __future__ import annotations

import csv
import dataclasses
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.yaml_lines import Located, Mapping, read_yaml

FRAMEWORKS = ("mdev_pf", "mdev_vf", "vendor_vfio")
MAX_GPUS = 16
MAX_VFS = 48
MAX_NICS = 8
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
DRIVER_VERSION = re.compile(r"\d{3}\.\d{1,3}(\.\d{1,3})?")
NO_DRIVER = "none"
_DRIVER = re.compile(rf"{NO_DRIVER}|{DRIVER_VERSION.pattern}")
_UUIDS = uuid.UUID("5b4bbd0f-5dd9-4c73-8a3e-3b8d7c2b8a10")
FABRIC_TABLE = Path(__file__).resolve().parent.parent / "vgpu_profiles/nvidia/fabric_partitions.csv"
MODEL_TABLE = Path(__file__).resolve().parent.parent / "vgpu_profiles/nvidia/gpu_models.csv"


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``extra`` goes to the host's loader as it is (see lab/tools/README.md)."""

    model: str
    framework: str
    vfs: int
    """Virtual functions the device can have; 0 for ``mdev_pf``."""
    uuid: str
    numa: int
    module_id: int
    switch: int = 0
    """GPUs with one number sit behind one PCIe switch without ACS, in one IOMMU group; 0: behind none."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Nic:
    """A network card whose driver switches seven virtual functions on at most (Intel's 82576, as QEMU emulates it)."""

    beside: int = 0
    """Number of the GPU, from 1, whose PCIe switch it is under, with ACS; 0: a port of its own."""


@dataclass(frozen=True)
class Host:
    name: str
    driver_version: str
    """``none``: a driver bundle has to bring one."""
    gpus: tuple[Gpu, ...]
    memory_mib: int = 6144
    vcpus: int = 2
    ssh_port: int = 0
    """On 127.0.0.1; 0: a free one."""
    baseboard: str = ""
    """An NVSwitch baseboard of fabric_partitions.csv; empty: the GPUs have no fabric."""
    nics: tuple[Nic, ...] = ()
    numa_nodes: int = 1
    """Among which processors and memory are divided evenly."""

    def payload(self) -> dict[str, Any]:
        """What the host itself is told (lab/tools/README.md); the GPUs stand in PCI order."""
        gpus = [{**dataclasses.asdict(gpu), **gpu.extra} for gpu in self.gpus]
        for gpu in gpus:
            del gpu["extra"]
        return {
            "host": self.name,
            "driver_version": self.driver_version,
            "baseboard": self.baseboard,
            "gpus": gpus,
        }


def model_names(table: Path = MODEL_TABLE) -> frozenset[str]:
    """GPU models the catalogue knows."""
    with table.open(newline="") as file:
        return frozenset(row["gpu_model"] for row in csv.DictReader(file))


def baseboards(table: Path = FABRIC_TABLE) -> tuple[str, ...]:
    """NVSwitch baseboards whose partitions the catalogue knows."""
    with table.open(newline="") as file:
        return tuple(dict.fromkeys(row["baseboard"] for row in csv.DictReader(file)))


def read_scenarios(files: Iterable[Path], models: frozenset[str]) -> tuple[Host, ...]:
    """Hosts of all files together. Raises LabError for a bad file or a name used twice."""
    hosts: dict[str, Host] = {}
    for file in files:
        for host in read_scenario(file, models):
            if host.name in hosts:
                raise LabError(f"{file}: host {host.name} is in another scenario too", "give it another name")
            hosts[host.name] = host
    return tuple(hosts.values())


def read_scenario(file: Path, models: frozenset[str]) -> tuple[Host, ...]:
    try:
        text = file.read_text()
    except OSError as error:
        raise LabError(f"{file}: {error.strerror}", "lab/scenarios has some") from error
    except UnicodeDecodeError as error:
        raise LabError(f"{file}:1: not a text file") from error
    document = read_yaml(str(file), text).mapping()
    document.only("hosts")
    listed = document.need("hosts").sequence(1, 8)
    hosts = [_host(item.mapping(), models) for item in listed]
    for number, host in enumerate(hosts):
        if host.name in {other.name for other in hosts[:number]}:
            raise listed[number].mistake(f"host {host.name} is there twice")
    return tuple(hosts)


def _host(host: Mapping, models: frozenset[str]) -> Host:
    host.only("name", "driver_version", "gpus", "memory_mib", "vcpus", "ssh_port", "baseboard", "nics", "numa_nodes")
    name = host.need("name").matching(_NAME, "a host name: lower-case letters, digits and dashes, at most 32")
    gpus = host.need("gpus").sequence(1, MAX_GPUS)
    made = tuple(_gpu(item.mapping(), name, number, models) for number, item in enumerate(gpus))
    board, nics = host.get("baseboard"), host.get("nics")
    vcpus, nodes = host.number("vcpus", 2, 1, 64), host.number("numa_nodes", 1, 1, 8)
    if vcpus % nodes:
        raise host.mistake(f"{vcpus} vcpus cannot be divided among {nodes} numa_nodes evenly")
    return Host(
        name=name,
        driver_version=host.need("driver_version").matching(
            _DRIVER, 'a driver version in quotes, like "550.163.02", and not none'
        ),
        gpus=made,
        memory_mib=host.number("memory_mib", 6144, 2048, 262144),
        vcpus=vcpus,
        ssh_port=host.number("ssh_port", 0, 0, 65535),
        baseboard=board.one_of(baseboards()) if board else "",
        nics=tuple(_nic(item.mapping(), made) for item in nics.sequence(1, MAX_NICS)) if nics else (),
        numa_nodes=nodes,
    )


def _nic(nic: Mapping, gpus: tuple[Gpu, ...]) -> Nic:
    nic.only("beside")
    beside = nic.number("beside", 0, 0, len(gpus))
    if beside and gpus[beside - 1].switch:
        raise nic.mistake(f"GPU {beside} is behind a switch without ACS: no function beside it can be given away")
    return Nic(beside=beside)


def _gpu(gpu: Mapping, host: str, number: int, models: frozenset[str]) -> Gpu:
    gpu.only("model", "framework", "vfs", "uuid", "numa", "module_id", "switch", "extra")
    framework = gpu.need("framework").one_of(FRAMEWORKS)
    vfs = gpu.number("vfs", 0 if framework == "mdev_pf" else 16, 0, MAX_VFS)
    if (framework == "mdev_pf") != (vfs == 0):
        raise gpu.mistake(f"vfs is {vfs}: {framework} has {'none' if framework == 'mdev_pf' else 'at least one'}")
    drawn = f"GPU-{uuid.uuid5(_UUIDS, f'{host}/{number}')}"
    given = gpu.get("uuid")
    extra = gpu.get("extra")
    return Gpu(
        model=_model(gpu.need("model"), models),
        framework=framework,
        vfs=vfs,
        uuid=given.matching(re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "GPU-<uuid>")
        if given
        else drawn,
        numa=gpu.number("numa", 0, 0, 7),
        module_id=gpu.number("module_id", 0, 0, MAX_GPUS),
        switch=gpu.number("switch", 0, 0, MAX_GPUS),
        extra=extra.mapping().plain() if extra else {},
    )


def _model(model: Located, models: frozenset[str]) -> str:
    name = model.text()
    if name not in models:
        raise model.mistake(f'no GPU model "{name}"; vgpu_profiles/nvidia/gpu_models.csv lists them')
    return name
