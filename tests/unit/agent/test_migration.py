# SPDX-License-Identifier: Apache-2.0
"""How long a guest may stand still when its domain moves, and when it is told that it has gone."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import libvirt
import pytest

from orchestrator.agent.libvirt import migration
from orchestrator.core.actions.live_move import MovedVm

PREPARES: int = 60
"""Times that it is asked before its memory was sent once: the other QEMU starts, disks are copied."""


class _Domain:
    """Stands still, when it may do so for 2.5 s, and has left then: nothing more is said of it."""

    def __init__(self) -> None:
        self.asked = 0
        self.limits: list[tuple[int, int]] = []
        self._may = threading.Event()

    def migrateToURI3(self, _uri: str, _parameters: object, _flags: int) -> None:  # noqa: N802 - libvirt's
        assert self._may.wait(30)

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's
        if self._may.is_set():
            raise libvirt.libvirtError("it has left")
        self.asked += 1
        later = {libvirt.VIR_DOMAIN_JOB_MEMORY_ITERATION: 2} if self.asked > PREPARES else {}
        return {libvirt.VIR_DOMAIN_JOB_DATA_PROCESSED: 7, **later}

    def state(self) -> tuple[int, int]:
        return (libvirt.VIR_DOMAIN_RUNNING if self.asked < PREPARES else libvirt.VIR_DOMAIN_PAUSED), 0

    def migrateSetMaxDowntime(self, limit_ms: int) -> None:  # noqa: N802 - libvirt's
        self.limits.append((self.asked, limit_ms))
        if limit_ms == 2500:
            self._may.set()


def test_the_pause_that_is_allowed_grows_only_once_its_memory_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "_POLL_S", 2.0**-12)
    monkeypatch.setattr(migration, "_PATIENCE", 4)
    domain, gone = _Domain(), list[MovedVm]()
    _moving(domain, None).run(lambda _: True, gone.append)
    assert domain.limits == [(1, 900), (PREPARES + 4, 900), (PREPARES + 8, 1200), (PREPARES + 12, 2500)]
    (moved,) = gone
    assert moved.sent_bytes == 7
    assert 0 < moved.paused_ms < 30_000


def _moving(domain: object, process: migration.QemuProcess | None) -> migration._Migration:
    return migration._Migration(domain, "qemu:///system", {}, migration.FLAGS, 900, process)


class _Confirming:
    """Has stopped and answers nothing until it is all cleaned up, as libvirt's when it holds the domain's lock."""

    def __init__(self, error: str) -> None:
        self.cleaned_up = threading.Event()
        self._error = error
        self._asked = 0

    def migrateToURI3(self, _uri: str, _parameters: object, _flags: int) -> None:  # noqa: N802 - libvirt's
        assert self.cleaned_up.wait(30)
        if self._error:
            raise libvirt.libvirtError(self._error)

    def state(self) -> tuple[int, int]:
        self._asked += 1
        if self._asked > 1:
            self.cleaned_up.wait(30)
        return libvirt.VIR_DOMAIN_PAUSED, 0

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's
        self.cleaned_up.wait(30)
        raise libvirt.libvirtError("the domain is not running")


def _write_phase(file: Path, phase: str) -> None:
    file.with_suffix(".new").write_text(
        f"<domstatus><job type='none' async='migration out' phase='{phase}'/></domstatus>"
    )
    file.with_suffix(".new").rename(file)


@pytest.mark.parametrize("error", ["", "the connection to libvirt broke"])
def test_it_has_gone_when_its_qemu_has_ended_though_libvirt_still_cleans_up(tmp_path: Path, error: str) -> None:
    domain, status = _Confirming(error), tmp_path / "vm.xml"
    told, reached = list[str](), list[object]()
    with subprocess.Popen(["sleep", "60"]) as qemu:

        def progress(_: object) -> bool:
            """Each time it is asked something else has happened."""
            reached.append(_)
            if len(reached) == 1:
                _write_phase(status, "confirm3")
            elif len(reached) == 2:
                told.append("its QEMU ends")
                qemu.kill()
            return True

        def gone(_: MovedVm) -> None:
            told.append("gone" if not domain.cleaned_up.is_set() else "too late")
            domain.cleaned_up.set()

        _write_phase(status, "perform3_done")
        process = migration.QemuProcess(status, os.pidfd_open(qemu.pid))
        _moving(domain, process).run(progress, gone)
        os.close(process.pidfd)
    assert told == ["its QEMU ends", "gone"]


class _Killed(_Confirming):
    """Its daemon dies before it has cleaned up. ``later_s``: so much later the domain's QEMU ends, by the daemon that
    is back then, which removes what it had written of it."""

    def __init__(self, status: Path, qemu: subprocess.Popen[bytes], later_s: float) -> None:
        super().__init__("")
        self._status, self._qemu, self._later_s = status, qemu, later_s

    def migrateToURI3(self, _uri: str, _parameters: object, _flags: int) -> None:  # noqa: N802 - libvirt's
        _write_phase(self._status, "confirm3")
        if not self._later_s:
            self._qemu.kill()
            self._qemu.wait()
        else:
            threading.Timer(self._later_s, self._back).start()
        raise libvirt.libvirtError("the connection to libvirt broke")

    def _back(self) -> None:
        self._status.unlink()
        self._qemu.kill()


@pytest.mark.parametrize("later_s", [0.0, 0.5])
def test_it_has_gone_though_libvirt_was_killed_before_it_had_cleaned_up(tmp_path: Path, later_s: float) -> None:
    gone = list[MovedVm]()
    with subprocess.Popen(["sleep", "60"]) as qemu:
        process = migration.QemuProcess(tmp_path / "vm.xml", os.pidfd_open(qemu.pid))
        _moving(_Killed(tmp_path / "vm.xml", qemu, later_s), process).run(lambda _: True, gone.append)
        os.close(process.pidfd)
    assert len(gone) == 1


class _Quick(_Confirming):
    """Is seen to run, and before the next look it has stopped, was confirmed and its QEMU has ended."""

    def __init__(self, status: Path, qemu: subprocess.Popen[bytes]) -> None:
        super().__init__("")
        self._status, self._qemu = status, qemu

    def state(self) -> tuple[int, int]:
        self._asked += 1
        if self._asked == 1:
            return libvirt.VIR_DOMAIN_RUNNING, 0
        _write_phase(self._status, "confirm3")
        self._qemu.kill()
        self.cleaned_up.wait(30)
        raise libvirt.libvirtError("it is gone")

    def jobStats(self) -> dict[str, int]:  # noqa: N802 - libvirt's
        return {libvirt.VIR_DOMAIN_JOB_DATA_PROCESSED: 7}

    def migrateSetMaxDowntime(self, limit_ms: int) -> None:  # noqa: N802 - libvirt's
        assert limit_ms


def test_it_has_gone_though_nobody_saw_that_it_had_stopped(tmp_path: Path) -> None:
    told = list[tuple[bool, int]]()
    with subprocess.Popen(["sleep", "60"]) as qemu:
        domain = _Quick(tmp_path / "vm.xml", qemu)

        def gone(moved: MovedVm) -> None:
            told.append((domain.cleaned_up.is_set(), moved.paused_ms))
            domain.cleaned_up.set()

        late = threading.Timer(5.0, domain.cleaned_up.set)
        late.start()
        process = migration.QemuProcess(tmp_path / "vm.xml", os.pidfd_open(qemu.pid))
        _moving(domain, process).run(lambda _: True, gone)
        late.cancel()
        os.close(process.pidfd)
    ((too_late, paused_ms),) = told
    assert not too_late
    assert 0 < paused_ms < 5000


@pytest.mark.parametrize("phase", ["perform3_done", "confirm3_cancelled", ""])
def test_what_ended_before_the_other_host_had_all_of_it_has_not_gone(tmp_path: Path, phase: str) -> None:
    domain, gone = _Confirming("the other end is gone"), list[MovedVm]()
    _write_phase(tmp_path / "vm.xml", phase)
    with subprocess.Popen(["true"]) as qemu:
        process = migration.QemuProcess(tmp_path / "vm.xml", os.pidfd_open(qemu.pid))
        threading.Timer(1.0, domain.cleaned_up.set).start()
        with pytest.raises(libvirt.libvirtError):
            _moving(domain, process).run(lambda _: True, gone.append)
        os.close(process.pidfd)
    assert not gone
