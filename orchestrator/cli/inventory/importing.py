# SPDX-License-Identifier: Apache-2.0
"""Enrols many hosts side by side. Each is an operation of its own: one that fails stops no other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Final, Literal

import typer

from orchestrator.cli.inventory.wanted import WantedHost
from orchestrator.cli.output import printable, shown, somebody_types
from orchestrator.cli.progress import wait_among_others
from orchestrator.cli.session import CliSession
from orchestrator.client.connection import Json
from orchestrator.core.errors import Denied, InvalidInput, Reason, VgpuctlError

_NOT_ENROLLED: Final = frozenset({"enrolling", "failed", "removing", "forgotten"})

Result = Literal["enrolled", "present", "failed"]


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of one host. ``present``: it was enrolled before, at this address, and was left alone."""

    name: str
    address: str
    result: Result
    operation: str | None = None
    error: VgpuctlError | None = None


def split_present(hosts: Sequence[Json], wanted: Sequence[WantedHost]) -> tuple[list[WantedHost], list[Imported]]:
    """Hosts to enrol, and those that are enrolled at the same address already; ``hosts``: as the server lists them.
    What becomes of one whose enrolment has not ended, or failed, the server says.

    :raises InvalidInput: ``inventory.invalid``: a name or an address is that of another host that is enrolled
    """
    enrolled = [host for host in hosts if host["state"] not in _NOT_ENROLLED]
    places = {host["name"]: (host["address"], host["port"]) for host in enrolled}
    names = {place: name for name, place in places.items()}
    new, present, reasons = list[WantedHost](), list[Imported](), list[Reason]()
    for host in wanted:
        place = (host.address, host.port)
        if places.get(host.name) == place:
            present.append(Imported(name=host.name, address=host.address, result="present"))
        elif host.name in places:
            address, port = places[host.name]
            why = f"host {host.name} is enrolled at {address} port {port}, not at {host.address} port {host.port}"
            reasons.append(Reason(code="host.exists", message=why, subjects=(host.called,)))
        elif place in names:
            why = f"{host.address} port {host.port} is enrolled as {names[place]}"
            reasons.append(Reason(code="host.address_taken", message=why, subjects=(host.called,)))
        else:
            new.append(host)
    if reasons:
        raise InvalidInput(
            "inventory.invalid",
            f"{len(reasons)} of {len(wanted)} hosts are in the way of hosts that are enrolled, nothing was done",
            hint="set vgpuctl_name or ansible_host; 'vgpuctl host list' shows what is enrolled",
            reasons=tuple(reasons),
        )
    return new, present


def with_fingerprints(
    session: CliSession, wanted: Sequence[WantedHost], *, at_once: int, yes: bool
) -> tuple[list[WantedHost], list[Imported]]:
    """Hosts whose key is known, from the inventory or by the answer to one question for all; and those out of reach.

    :raises InvalidInput: ``host.key_not_confirmed``: nobody is there to ask
    :raises Denied: ``host.key_not_confirmed``: the person said no
    """
    unknown = [host for host in wanted if host.fingerprint is None]
    by_name: dict[str, str] = {}
    lost: list[Imported] = []

    def scan(host: WantedHost) -> Json | VgpuctlError:
        try:
            return session.sibling().client.scan_host(host.address, host.port)
        except VgpuctlError as error:
            return error

    with ThreadPoolExecutor(at_once) as pool:
        for host, key in zip(unknown, pool.map(scan, unknown), strict=True):
            if isinstance(key, VgpuctlError):
                lost.append(Imported(name=host.name, address=host.address, result="failed", error=key))
            else:
                by_name[host.name] = str(key["fingerprint"])
                print(f"{shown(key['type'])} key of {host.name}: {shown(key['fingerprint'])}", file=sys.stderr)
    if by_name:
        _confirm(len(by_name), yes=yes)
    known = [replace(host, fingerprint=host.fingerprint or by_name.get(host.name)) for host in wanted]
    return [host for host in known if host.fingerprint is not None], lost


def _confirm(number: int, *, yes: bool) -> None:
    if yes:
        return
    if not somebody_types():
        raise InvalidInput(
            "host.key_not_confirmed",
            f"nobody confirmed the keys of {number} hosts",
            hint="compare them and set vgpuctl_host_key_fingerprint in the inventory, or say --yes",
        )
    if not typer.confirm(f"Are these the keys of the {number} hosts?", err=True):
        raise Denied(
            "host.key_not_confirmed",
            "the host keys were not confirmed, nothing was done",
            hint="compare them with what the hosts' consoles say",
        )


def enrol_all(
    session: CliSession, wanted: Sequence[WantedHost], keys: Mapping[str, str], *, at_once: int
) -> list[Imported]:
    """``keys``: the private key's text by host. Tells on standard error how each one ended, as it ends."""
    stop = Event()
    began = time.monotonic()

    def tell(done: Future[Imported]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        one = done.result()
        if one.error and stop.is_set():  # it goes on; who asked waits no longer
            return
        end = f"✗ {one.name}: {one.error.message}" if one.error else f"✓ {one.name}: enrolled"
        print(f"{printable(end)} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(_enrol(session, stop), host, keys[host.name]) for host in wanted]
        for task in running:
            task.add_done_callback(tell)
        try:
            return [task.result() for task in running]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _enrol(session: CliSession, stop: Event) -> Callable[[WantedHost, str], Imported]:
    def enrol(host: WantedHost, key: str) -> Imported:
        own = session.sibling()
        operation: str | None = None
        try:
            operation = own.client.add_host(_body(host, key))["operation"]
            if operation is not None:
                wait_among_others(own, operation, stop)
            if host.labels:
                own.client.change_host(host.name, {"labels": dict(host.labels)})
        except VgpuctlError as error:
            return Imported(name=host.name, address=host.address, result="failed", operation=operation, error=error)
        return Imported(name=host.name, address=host.address, result="enrolled", operation=operation)

    return enrol


def _body(host: WantedHost, key: str) -> dict[str, object]:
    return {
        "name": host.name,
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "gpus": host.gpus,
        "provisioning_key": key,
        "fingerprint": host.fingerprint,
    }
