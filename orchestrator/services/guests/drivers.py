# SPDX-License-Identifier: Apache-2.0
"""Which of the operator's bundles a guest gets its driver from: the locked one, or the newest that its host takes."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.drivers.bundle import TAKEN, BundleKind, DriverBundle
from orchestrator.core.drivers.check import forbidden_pair
from orchestrator.core.drivers.lock import KINDS, Locked, lock_of
from orchestrator.core.drivers.matrix import check_cuda, version_key
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.vms.vm import Vm
from orchestrator.services.drivers.locks import NOTHING
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class GuestHost:
    """Where a guest is, or would be. ``whole``: its VM has whole GPUs; ``about``: for people."""

    host: str
    whole: bool
    about: str

    @classmethod
    def of(cls, vm: Vm) -> GuestHost:
        whole = all(device.is_whole_gpu for device in vm.devices)
        return cls(host=vm.host, whole=whole, about=f"VM {vm.full_name}")


def guest_bundle(tx: Transaction, on: GuestHost) -> DriverBundle:
    """NVIDIA's guest driver for a vGPU, its data-center driver for whole GPUs; a ``.run`` file, as any system takes it.

    :raises NotFound: ``bundle.missing``; :raises Conflict: ``vm.driver_forbidden``, naming the table's row
    """
    kind: BundleKind = "datacenter" if on.whole else "vgpu_guest"
    host = tx.hosts.get(on.host)
    locked = lock_of(tx.driver_locks.get() or NOTHING, host.labels).locked.get("guest_driver")
    fitting = [
        bundle
        for bundle in tx.driver_bundles.list()
        if bundle.content.kind == kind
        and bundle.content.format == "run"
        and bundle.content.architecture in TAKEN
        and (locked is None or bundle.content.version == locked.version)
        and (locked is None or locked.sha256 in {None, bundle.sha256})
    ]
    if not fitting:
        version = "" if locked is None else f" {locked.version}"
        raise NotFound(
            "bundle.missing",
            f"there is no bundle of guest_driver{version} as a .run file",
            hint="'vgpuctl driver bundle add FILE --key KEY' takes the operator's own",
        )
    snapshot = None if on.whole else tx.hosts.snapshot(on.host)
    return _accepted(fitting, on, None if snapshot is None else snapshot.driver_version)


def guest_tools(tx: Transaction, on: GuestHost, driver: DriverBundle | None) -> dict[str, object]:
    """``cuda``: the toolkit that is locked; None: any that goes with the guest's driver, which the guest is asked for.
    ``cudnn``: the version that is locked, and ``cudnn_packages``: digests of the bundles of it; None: none is wanted.

    ``driver``: what the guest gets first; None: it keeps its own.

    :raises Conflict: ``guest.cuda_forbidden``, naming the table's row
    """
    lock = lock_of(tx.driver_locks.get() or NOTHING, tx.hosts.get(on.host).labels)
    cuda, cudnn = lock.version("cuda"), lock.locked.get("cudnn")
    if driver is not None:
        check_cuda(shipped_profiles().catalogue.driver_matrix, driver=driver.content.version, toolkit=cuda)
    packages = [] if cudnn is None else [bundle.sha256 for bundle in tx.driver_bundles.list() if _is(bundle, cudnn)]
    return {"cuda": cuda, "cudnn": lock.version("cudnn"), "cudnn_packages": packages}


def _is(bundle: DriverBundle, locked: Locked) -> bool:
    content = bundle.content
    right = content.kind in KINDS[locked.component] and content.version == locked.version
    return right and content.architecture in TAKEN and locked.sha256 in {None, bundle.sha256}


def _accepted(fitting: list[DriverBundle], on: GuestHost, host_driver: str | None) -> DriverBundle:
    """The newest that the tables do not forbid on such a host. ``host_driver``: None: it has no say, or is unknown."""
    newest = sorted(fitting, key=lambda one: version_key(one.content.version), reverse=True)
    why = ""
    for bundle in newest:
        version = bundle.content.version
        forbidden = host_driver and forbidden_pair(
            shipped_profiles().catalogue.driver_matrix, host_driver=host_driver, guest_driver=version
        )
        if not forbidden:
            return bundle
        why = why or f"driver {version} on a host with {host_driver}: {forbidden}"
    raise Conflict(
        "vm.driver_forbidden",
        f"no guest driver that is there goes with the host of {on.about}: {why}",
        hint="'vgpuctl driver bundle add FILE --key KEY' takes one of the host's branch or the one before",
    )
