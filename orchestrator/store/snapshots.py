# SPDX-License-Identifier: Apache-2.0
"""Snapshots and facts of hosts as text and back: what the agent sent was checked when it came (core/wire.py). What many
GPUs have alike is one object in memory, however many hosts there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json
from sqlalchemy.types import UserDefinedType

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.gpu.fabric import FabricSnapshot
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.hosts.nic import HostNic
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostCpu, HostSnapshot, HostVgpuType
from orchestrator.core.units import MIB

_SNAPSHOT: Final = TypeAdapter(HostSnapshot)
_read: Final = _SNAPSHOT.validator.validate_json


def snapshot_text(snapshot: HostSnapshot) -> str:
    """JSON; equal for equal snapshots."""
    return _SNAPSHOT.dump_json(snapshot).decode()


def snapshot_from_text(text: str) -> HostSnapshot:
    """The inverse; written by older versions it may lack what was not observed then."""
    snapshot: HostSnapshot = _read(text)
    return snapshot


class JsonText(UserDefinedType[str]):
    """For a column of JSON: text that is JSON already."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"


_OWN: Final = {"address", "numa_node", "module_id", "parents", "instances", "problems", "bridges", "signals"}
"""What tells the GPUs of a host apart; the rest is alike for all of a kind."""
_WRITTEN: Final = TypeAdapter(GpuSnapshot)
_GPU: Final = _WRITTEN.validator
_FABRIC: Final = TypeAdapter(FabricSnapshot | None)
_BRIDGE: Final = TypeAdapter(Bridge)
_NODE: Final = TypeAdapter(NumaNode)
_NIC: Final = TypeAdapter(HostNic)
_VERSIONS: Final = ("kernel", "libvirt", "qemu", "driver")


def facts_text(facts: HostFacts) -> str:
    """Each kind of GPU once, and each GPU with what is its own."""
    kinds: dict[str, int] = {}
    gpus = []
    for gpu in facts.gpus:
        kind = _WRITTEN.dump_json(gpu, exclude=_OWN).decode()
        gpus.append([kinds.setdefault(kind, len(kinds)), _WRITTEN.dump_json(gpu, include=_OWN).decode()])
    own = ("vcpus", "memory_mib", "agent_too_old", "unconfined", "bridges", "fabric", "features", "cpu", "pools")
    of_host = {name: getattr(facts, name) for name in (*own, *_VERSIONS)}
    nodes = [_NODE.dump_json(node).decode() for node in facts.nodes]
    nics = [_NIC.dump_json(nic).decode() for nic in facts.nics]
    return to_json({**of_host, "nodes": nodes, "nics": nics, "kinds": list(kinds), "gpus": gpus}).decode()


def facts_from_text(text: str, disk_bytes: int) -> HostFacts:
    """The inverse of :func:`facts_text`; the disk is kept beside it, as it changes more often."""
    stored: dict[str, Any] = from_json(text)
    kinds = stored["kinds"]
    return HostFacts(
        vcpus=stored["vcpus"],
        memory_mib=stored["memory_mib"],
        disk_bytes=disk_bytes,
        gpus=tuple(_gpu(kinds[number], own) for number, own in stored["gpus"]),
        agent_too_old=stored.get("agent_too_old", True),  # a server that did not ask had an older agent there
        unconfined=stored.get("unconfined", False),
        bridges=tuple(_BRIDGE.validate_python(bridge) for bridge in stored.get("bridges", ())),
        fabric=_FABRIC.validate_python(stored.get("fabric")),
        nodes=tuple(_cached(_NODES, text, _NODE.validate_json) for text in stored.get("nodes", ())),
        features=tuple(stored.get("features", ())),
        pools=tuple(stored.get("pools", ())),
        nics=tuple(_cached(_NICS, text, _NIC.validate_json) for text in stored.get("nics", ())),
        cpu=HostCpu(**stored["cpu"]) if stored.get("cpu") else None,
        **{name: stored.get(name, "") for name in _VERSIONS},
    )


V = TypeVar("V")
_PER_LETTER: Final = 8
"""Bytes that a letter of text takes as the objects that are made of it."""
_NODES: Final = ByteCache[NumaNode](16 * MIB)
_NICS: Final = ByteCache[HostNic](16 * MIB)
_KINDS: Final = ByteCache[tuple[str, GpuSnapshot]](32 * MIB)
"""With the text that it was read from: the key of all GPUs of the kind, so that it is in memory once."""
_GPUS: Final = ByteCache[GpuSnapshot](128 * MIB)
"""By the texts of kind and GPU. Enough for 8,000 GPUs with some vGPUs each."""


def _cached(cache: ByteCache[V], text: str, read: Callable[[str], V]) -> V:
    value = cache.get(text)
    if value is None:
        value = read(text)
        cache.put(text, value, _PER_LETTER * len(text))
    return value


def _gpu(kind: str, own: str) -> GpuSnapshot:
    """One object for equal GPUs, so that what is worked out for one of them is found again for the next."""
    text, bare = _cached(_KINDS, kind, lambda text: (text, _bare(text)))
    gpu = _GPUS.get((text, own))
    if gpu is None:
        gpu = _made(bare, own)
        _GPUS.put((text, own), gpu, 1024 + _PER_LETTER * len(own))
    return gpu


def _made(bare: GpuSnapshot, own: str) -> GpuSnapshot:
    mine: dict[str, Any] = from_json(own)
    if not mine["parents"] and not mine.get("instances") and not mine.get("signals"):
        ports = tuple(mine.get("bridges", ()))  # a server that did not ask has written none
        plain = {"parents": (), "instances": (), "problems": tuple(mine["problems"]), "bridges": ports, "signals": ()}
        return replace(bare, **{**mine, **plain})
    read: GpuSnapshot = _GPU.validate_python({**asdict(bare), **mine})
    return replace(read, types=bare.types)


class _Types(tuple[HostVgpuType, ...]):
    """Hashed once: hundreds of them are part of many keys."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


def _bare(text: str) -> GpuSnapshot:
    read: GpuSnapshot = _GPU.validate_python(
        {
            **from_json(text),
            "address": "",
            "numa_node": None,
            "module_id": None,
            "parents": (),
            "problems": (),
            "bridges": (),
        }
    )
    return replace(read, types=_Types(read.types))
