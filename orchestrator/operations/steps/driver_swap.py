# SPDX-License-Identifier: Apache-2.0
"""The swap of a host's driver, and back, over a reboot where it needs one.

What is due after a reboot stands on the host (playbooks/roles/vgpuctl_nvidia_host), so a swap whose server died is the
same call once more: nothing of it has to be remembered here.
"""

from __future__ import annotations

from typing import Final

from orchestrator.core.drivers.bundle import DriverBundle
from orchestrator.core.drivers.host_drivers import DriverFile, DueReboot, HostDrivers
from orchestrator.core.errors import Conflict, Fatal, NotFound, Retryable, WorldError
from orchestrator.core.hosts.bridges import outside_ovn
from orchestrator.core.maintenance.maintenance import REBOOTING
from orchestrator.core.ovn import HostInOvn
from orchestrator.operations.context import Context

BACK_WITHIN_S: Final = 900.0
"""From one reboot of a host until its agent answers: firmware with many GPUs and much memory needs ten minutes."""
MAX_REBOOTS: Final = 2
"""In one call: the role asks for one, and a host that asks for ever is stopped here."""
POLL_S: Final = 5.0
NOT_BACK: Final = "host.not_back"


def driver_file(context: Context, sha256: str) -> DriverFile:
    """:raises NotFound: ``bundle.unknown``; :raises Fatal: ``bundle.damaged``"""
    with context.world.store.read() as tx:
        bundle: DriverBundle | None = tx.driver_bundles.find(sha256)
    if bundle is None:
        raise NotFound(
            "bundle.unknown",
            f"driver bundle {sha256[:12]} was removed meanwhile",
            hint="'vgpuctl driver bundle add FILE --key KEY' brings it again, then try again",
        )
    return DriverFile(
        sha256=sha256,
        kind=bundle.content.kind,
        version=bundle.content.version,
        format=bundle.content.format,
        path=str(context.world.bundles.checked(sha256)),
        package=bundle.content.package,
    )


def wanted_drivers(context: Context, prefix: str) -> HostDrivers | None:
    """``prefix``: of the inputs, "" for what is to come and ``before_`` for what was there; None: nothing was."""
    driver, fabric = context.inputs.get(f"{prefix}driver"), context.inputs.get(f"{prefix}fabric_manager")
    if not isinstance(driver, str):
        return None
    return HostDrivers(
        driver=driver_file(context, driver),
        fabric_manager=driver_file(context, fabric) if isinstance(fabric, str) else None,
        base=context.inputs.get("base") is True and not prefix,
        reboot=context.inputs.get("reboot") is True,
    )


def install(context: Context) -> str:
    """:raises Fatal: ``host.not_back``, and what a driver's installation can fail of"""
    wanted = wanted_drivers(context, "")
    if wanted is None:
        raise Fatal("driver.no_bundle", "the operation names no driver", hint="begin it again")
    rebooted = _bring(context, wanted)
    return f"{wanted.driver.version}, after a reboot: {rebooted.why}" if rebooted else wanted.driver.version


def take_back(context: Context) -> None:
    """Where no driver was there is none to go back to: what was put there stays, unused. Nothing is done blindly: a
    host that did not return from its reboot, and is still away, is left to a person."""
    before = wanted_drivers(context, "before_")
    if before is None:
        context.warnings.append(f"host {context.host_name} had no driver: the new one is left there")
        return
    with context.world.store.read() as tx:
        error = tx.operations.get(context.operation_id).operation.error or {}
    _bring(context, before, patient=error.get("code") != NOT_BACK)


def _bring(context: Context, wanted: HostDrivers, *, patient: bool = True) -> DueReboot | None:
    """The reboot that it took. ``patient``: a host that does not answer at first is waited for as well: it may be on
    its way back from a reboot that an earlier attempt began."""
    clock = context.world.clock
    end = clock.monotonic() + (BACK_WITHIN_S if patient else 0.0)
    due: DueReboot | None = None
    reboots = 0
    while True:
        try:
            reboot = context.world.configurator.provision(context.host(), wanted, context.report)
        except Retryable as error:
            if error.code != "host.unreachable":
                raise
        else:
            if reboot is None:
                return due
            if due is None or reboot.boot_id != due.boot_id:
                due, end, reboots = reboot, clock.monotonic() + BACK_WITHIN_S, reboots + 1
            if reboots > MAX_REBOOTS:
                raise Fatal(
                    "driver.module_busy",
                    f"host {context.host_name} asks for one reboot after the other: {due.why}",
                    hint="find out what uses the driver right after its boot",
                )
        _until_it_answers(context, due, end)


def _until_it_answers(context: Context, due: DueReboot | None, end: float) -> None:
    """On another boot than the one that ends, if that is known.

    :raises Fatal: ``host.not_back``
    """
    context.report(f"{REBOOTING}: {due.why}" if due else f"{REBOOTING}: it does not answer yet")
    while True:
        if context.world.clock.monotonic() > end:
            then = f"'vgpuctl operation retry {context.operation_id}' takes its old driver back"
            raise not_returned(context, due, then)
        context.pause(POLL_S)
        try:
            boot = context.world.link.observe(context.host()).boot_id
        except WorldError:  # its agent, or the host itself, is just starting
            continue
        if due is None or boot != due.boot_id:
            return


def not_returned(context: Context, due: DueReboot | None, then: str = "") -> Fatal:
    """``then``: what helps once it answers."""
    cause = f" from its reboot ({due.why})" if due else ""
    then = then or f"'vgpuctl host uncordon {context.host_name}'"
    return Fatal(
        NOT_BACK,
        f"host {context.host_name} did not come back{cause} within {BACK_WITHIN_S / 60:.0f} minutes",
        hint=f"look at its console; once it answers, {then}",
    )


IN_OVN_WITHIN_S: Final = 60.0


def join_ovn(context: Context) -> str:
    """:raises Conflict: ``host.no_ovn``: it is set up, and OVN does not answer it"""
    stored = context.inputs.get("ovn")
    if not isinstance(stored, dict):
        return "not asked for"
    wanted = HostInOvn(**{**stored, "central": tuple(stored["central"])})
    context.world.configurator.join_ovn(context.host(), wanted, context.report)
    end = context.world.clock.monotonic() + IN_OVN_WITHIN_S
    while (outside := outside_ovn(context.observe().bridges, context.host_name)) is not None:
        if context.world.clock.monotonic() > end:
            raise Conflict(
                "host.no_ovn", f"host {context.host_name} is set up for OVN, and not in it: {outside}",
                hint="'vgpuctl network driver check' says what is wrong; what was set up there stays",
            )  # fmt: skip
        context.pause(POLL_S)
    return "central servers " + ", ".join(wanted.central)
