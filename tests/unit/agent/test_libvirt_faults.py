# SPDX-License-Identifier: Apache-2.0
"""libvirt hangs or goes away in the middle of a call, a guest does not listen: over libvirt's own test driver."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import libvirt
import pytest

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.connection import CALL_SECONDS, Libvirt
from orchestrator.agent.libvirt.domains import Domains, domain_key
from orchestrator.core.errors import Retryable, Unknown
from tests.unit.agent.fake_timing import FakeTiming

GRACE_S = 60


class Guest:
    """A running domain of ours."""

    def __init__(self, root: Path) -> None:
        self.vm = str(uuid.uuid4())
        self.timing = FakeTiming()
        self.libvirt = Libvirt("test:///default")
        ledger = Ledger(root, site="s", epoch=1, boot_id="boot-1")
        ledger.claim(domain_key(self.vm), self.vm)
        self.domains = Domains(self.libvirt, ledger, self.timing)
        self.connection: Any = libvirt.open("test:///default")
        self.connection.createXML(
            f"<domain type='test'><name>ours-{self.vm[:8]}</name><uuid>{self.vm}</uuid><memory unit='MiB'>64</memory>"
            "<os><type>hvm</type></os></domain>"
        )


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    made = Guest(tmp_path)
    yield made
    for domain in made.connection.listAllDomains():
        if domain.UUIDString() == made.vm:
            domain.destroy()


def connection_broke() -> Exception:
    error = libvirt.libvirtError("end of file while reading data")
    error.err = (libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_FROM_RPC, "end of file", 2, None, None, None, -1, -1)
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize(
    ("models", "said"),
    [(("apparmor", "dac"), "apparmor"), (("selinux", "dac"), "selinux"), (("dac",), "none"), ((), "none")],
)
def test_what_confines_qemu_is_asked_of_libvirt_once_for_a_connection(
    monkeypatch: pytest.MonkeyPatch, models: tuple[str, ...], said: str
) -> None:
    asked: list[Any] = []

    def answer(connection: Any) -> str:
        asked.append(connection)
        listed = "".join(f"<secmodel><model>{model}</model><doi>0</doi></secmodel>" for model in models)
        return f"<capabilities><host>{listed}</host></capabilities>"

    monkeypatch.setattr(libvirt.virConnect, "getCapabilities", answer)
    connection = Libvirt("test:///default")
    assert [connection.hypervisor().confinement for _ in range(3)] == [said] * 3
    assert len(asked) == 1


def test_a_definition_of_another_name_renames_the_domain(tmp_path: Path) -> None:
    vm, host = str(uuid.uuid4()), Libvirt("test:///default")
    domains = Domains(host, Ledger(tmp_path, site="s", epoch=1, boot_id="boot-1"), FakeTiming())

    def named(name: str) -> str:
        return (
            f"<domain type='test'><name>{name}</name><uuid>{vm}</uuid><memory unit='MiB'>64</memory>"
            "<os><type>hvm</type></os></domain>"
        )

    first, second = f"one-{vm[:8]}", f"two-{vm[:8]}"
    for name, changed in ((first, True), (second, True), (second, False), (first, True)):
        assert domains.define(vm, named(name), lambda: None).changed is changed
        found = domains.find(vm)
        assert found is not None
        assert found.name == name
    assert domains.undefine(vm).changed


@pytest.mark.fault("F33")
def test_a_libvirt_that_restarts_inside_a_call_leaves_it_unknown_and_is_found_again(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[Any] = []
    alive = libvirt.virConnect.isAlive
    monkeypatch.setattr(libvirt.virConnect, "isAlive", lambda connection: connection not in gone and alive(connection))

    def restarts(connection: Any) -> None:
        gone.append(connection)
        raise connection_broke()

    with pytest.raises(Unknown) as lost:
        guest.libvirt.call(restarts)
    assert lost.value.code == "libvirt.answer_lost"
    assert guest.domains.is_active(guest.vm)
    assert guest.libvirt.connected() not in gone


@pytest.mark.fault("F34")
def test_a_libvirt_that_hangs_is_unknown_and_its_calls_do_not_pile_up(guest: Guest) -> None:
    released = threading.Event()
    codes: list[str] = []
    for _ in range(100):
        try:
            guest.libvirt.call(lambda _: released.wait(), limit_s=0.01)
        except (Unknown, Retryable) as error:
            codes.append(error.code)
        if codes[-1] == "libvirt.unreachable":
            break
    released.set()
    assert set(codes[:-1]) == {"libvirt.hung"}
    assert codes[-1] == "libvirt.unreachable"


def test_no_connection_has_more_calls_under_way_than_libvirtd_reads_keepalives_beside(guest: Guest) -> None:
    free, lock = threading.Event(), threading.Lock()
    most, under_way = Counter[int](), Counter[int]()
    begun = threading.Semaphore(0)

    def hold(connection: Any) -> None:
        key = id(connection)
        with lock:
            under_way[key] += 1
            most[key] = max(most[key], under_way[key])
        begun.release()
        free.wait(10)
        with lock:
            under_way[key] -= 1

    limits = [CALL_SECONDS] * 12 + [300.0] * 3
    with ThreadPoolExecutor(len(limits)) as pool:
        held = [pool.submit(guest.libvirt.call, hold, limit_s=limit) for limit in limits]
        for _ in range(4 + 3):
            assert begun.acquire(timeout=10)
        free.set()
        for one in held:
            one.result(10)
    assert sorted(most.values()) == [1, 1, 1, 4], "three long ones with a connection each, and the others in turn"


@pytest.mark.fault("F34")
def test_a_call_that_found_no_place_is_not_made_once_its_caller_has_gone(guest: Guest) -> None:
    """It could power off a VM that somebody has started since."""
    free, begun, made = threading.Event(), threading.Semaphore(0), threading.Event()

    def hold(_: Any) -> None:
        begun.release()
        free.wait(10)

    with ThreadPoolExecutor(4) as pool:
        held = [pool.submit(guest.libvirt.call, hold) for _ in range(4)]
        for _ in held:
            assert begun.acquire(timeout=10)
        with pytest.raises(Retryable) as refused:
            guest.libvirt.call(lambda _: made.set(), limit_s=0.2)
        free.set()
        for one in held:
            one.result(10)
    assert refused.value.code == "libvirt.unreachable"
    assert guest.domains.is_active(guest.vm), "there is a place again"
    assert not made.wait(0.2)


@pytest.mark.fault("F33")
@pytest.mark.parametrize("seen", ["shut off", "paused"])
def test_a_start_that_waited_for_an_earlier_one_whose_answer_was_lost_finds_it_running(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    domain = guest.connection.lookupByUUIDString(guest.vm)
    real, begun = libvirt.virDomain.isActive, [seen == "shut off"]
    if seen == "paused":
        domain.suspend()
    monkeypatch.setattr(libvirt.virDomain, "isActive", lambda one: 0 if begun[0] else real(one))

    def already(one: Any) -> None:
        begun[0] = False
        if seen == "paused":
            resumed(one)
        error = libvirt.libvirtError("domain is already running")
        error.err = (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_FROM_QEMU, "running", 2, None, None, None, -1, -1)
        raise error

    resumed = libvirt.virDomain.resume
    monkeypatch.setattr(libvirt.virDomain, "create", already)
    monkeypatch.setattr(libvirt.virDomain, "resume", already)
    assert guest.domains.start(guest.vm, lambda _xml, _adopted: None).changed
    assert guest.domains.is_active(guest.vm)


@pytest.mark.fault("F44")
def test_a_guest_that_ignores_its_shutdown_is_powered_off_after_the_limit_and_not_before(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(libvirt.virDomain, "shutdown", lambda _: asked.append(guest.timing.now))
    power_off, ended = libvirt.virDomain.destroy, []

    def destroy(domain: Any) -> None:
        ended.append(guest.timing.now)
        power_off(domain)

    monkeypatch.setattr(libvirt.virDomain, "destroy", destroy)
    stopped = guest.domains.stop(guest.vm, GRACE_S)
    assert (stopped.message, asked) == ("powered off", [0.0])
    assert ended[0] >= GRACE_S
