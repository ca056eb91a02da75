# SPDX-License-Identifier: Apache-2.0
"""A host is rebooted by its systemd: on the boot that is meant, and while nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.reboots import Reboots
from orchestrator.core.actions.reboots import RebootHost
from orchestrator.core.errors import Conflict, Fatal
from tests.unit.agent.bench import Bench


@pytest.fixture
def reboots(tmp_path: Path) -> Reboots:
    bench = Bench(tmp_path)
    booted = bench.host.paths.proc / "sys/kernel/random/boot_id"
    booted.parent.mkdir(parents=True, exist_ok=True)
    booted.write_text("boot-1\n")
    program(bench.host.paths.root, f'echo "$@" > {tmp_path}/asked')
    return Reboots(bench.host.paths, bench.domains)


def program(root: Path, line: str) -> None:
    """What ``systemd-run`` does there."""
    file = root / "usr/bin/systemd-run"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


def test_a_host_that_runs_nothing_reboots_in_a_moment(reboots: Reboots, tmp_path: Path) -> None:
    stop_all(reboots)
    assert reboots.reboot(RebootHost(boot="boot-1")).changed
    asked = (tmp_path / "asked").read_text()
    assert "--on-active=2" in asked
    assert asked.endswith("systemctl reboot\n")


def test_another_boot_than_the_one_that_is_meant_goes_on(reboots: Reboots, tmp_path: Path) -> None:
    stop_all(reboots)
    assert not reboots.reboot(RebootHost(boot="boot-0")).changed
    assert not (tmp_path / "asked").exists()


def test_a_domain_that_runs_is_not_ended(reboots: Reboots, tmp_path: Path) -> None:
    start_all(reboots)
    with pytest.raises(Conflict) as refused:
        reboots.reboot(RebootHost(boot="boot-1"))
    assert (refused.value.code, refused.value.message) == ("host.in_use", "the host runs test")
    assert not (tmp_path / "asked").exists()


def test_a_systemd_that_refuses_is_told_with_its_words(reboots: Reboots, tmp_path: Path) -> None:
    stop_all(reboots)
    program(tmp_path, "echo Access denied; exit 1")
    with pytest.raises(Fatal) as refused:
        reboots.reboot(RebootHost(boot="boot-1"))
    assert (refused.value.code, refused.value.details) == ("host.reboot_refused", "Access denied\n")
    (tmp_path / "usr/bin/systemd-run").unlink()
    with pytest.raises(Fatal, match="does not reboot it"):
        reboots.reboot(RebootHost(boot="boot-1"))


def start_all(reboots: Reboots) -> None:
    """What one connection to libvirt's test driver has stopped is stopped for the next while the first is open."""
    reboots.domains._libvirt.call(
        lambda its: [domain.create() for domain in its.listAllDomains() if not domain.isActive()]
    )


def stop_all(reboots: Reboots) -> None:
    """libvirt's test driver runs a domain of its own."""
    reboots.domains._libvirt.call(
        lambda its: [domain.destroy() for domain in its.listAllDomains() if domain.isActive()]
    )
