# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Literal

import pytest

from orchestrator.adapters.ansible.outcome import Failure, RunReport, error_of
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown, VgpuctlError


def _report(
    failure: Failure | None = None, *, status: str = "failed", code: int | None = 2, done: tuple[str, ...] = ()
) -> RunReport:
    return RunReport(status=status, return_code=code, failure=failure, hosts_done=done, output="PLAY [x]\nERROR! why")


def _failure(kind: Literal["unreachable", "failed"], message: str, output: str = "") -> Failure:
    return Failure(kind=kind, task="Copy the agent", message=message, output=output)


UNREACHABLE = [
    (
        "Failed to connect to the host via ssh: root@192.0.2.7: Permission denied (publickey).",
        Fatal,
        "host.auth_failed",
    ),
    ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", Fatal, "host.key_changed"),
    ("No ED25519 host key is known for [127.0.0.1]:4022 and you have requested strict", Fatal, "host.key_changed"),
    ("ssh: connect to host 192.0.2.7 port 22: Connection refused", Retryable, "host.unreachable"),
    ("ssh: connect to host 192.0.2.7 port 22: Connection timed out", Retryable, "host.unreachable"),
    ("Connection closed by 192.0.2.7 port 22", Retryable, "host.unreachable"),
]


@pytest.mark.parametrize(("message", "family", "code"), UNREACHABLE)
def test_a_host_that_cannot_be_reached_says_why(message: str, family: type[VgpuctlError], code: str) -> None:
    error = error_of(_report(_failure("unreachable", message)), "gpu-1")
    assert (type(error), error.code if error else None) == (family, code)


FAILED = [
    ("Missing sudo password", "", Fatal, "host.sudo_failed"),
    ("MODULE FAILURE", "sudo: a password is required\n", Fatal, "host.sudo_failed"),
    ("Could not get lock /var/lib/dpkg/lock-frontend. It is held by 812", "", Retryable, "host.package_lock"),
    ("MODULE FAILURE", "/bin/sh: 1: /usr/bin/python3: not found", Fatal, "host.unsupported"),
    ("[host.other_site] the host obeys site 7", "", Conflict, "host.other_site"),
    ("[host.has_vms] disks and volumes are still there: a", "", Conflict, "host.has_vms"),
    ("[host.libvirt_not_running] no libvirt daemon listens", "", Fatal, "host.libvirt_not_running"),
    ("[host.made_up] hello", "", Fatal, "host.provisioning_failed"),
    ("No space left on device", "", Fatal, "host.provisioning_failed"),
]


@pytest.mark.fault("F108")
@pytest.mark.parametrize(("message", "output", "family", "code"), FAILED)
def test_a_failed_task_becomes_the_error_of_its_row(
    message: str, output: str, family: type[VgpuctlError], code: str
) -> None:
    error = error_of(_report(_failure("failed", message, output)), "gpu-1")
    assert (type(error), error.code if error else None) == (family, code)


def test_a_hint_that_is_typed_names_the_host() -> None:
    error = error_of(_report(_failure("failed", "[host.foreign_ovn] the host is in another OVN")), "gpu-1")
    assert error is not None
    assert str(error.hint).startswith("'vgpuctl host set gpu-1 --unlabel ovn'")


def test_an_unforeseen_failure_names_the_task_and_the_modules_own_words() -> None:
    error = error_of(_report(_failure("failed", "No space left on device", "Traceback: deep")), "gpu-1")
    assert error is not None
    assert "'Copy the agent'" in error.message
    assert "No space left on device" in error.message
    assert error.details is not None
    assert "Traceback: deep" in error.details


@pytest.mark.fault("F112")
def test_success_needs_the_host_in_the_final_statistics() -> None:
    assert error_of(_report(status="successful", code=0, done=("gpu-1",)), "gpu-1") is None
    assert isinstance(error_of(_report(status="successful", code=0), "gpu-1"), Unknown)
    assert isinstance(error_of(_report(status="successful", code=0, done=("other",)), "gpu-1"), Unknown)


@pytest.mark.fault("F112")
@pytest.mark.parametrize(("status", "code"), [("timeout", 254), ("canceled", 254), ("failed", -9), ("failed", None)])
def test_a_run_that_was_cut_short_leaves_its_effect_unknown(status: str, code: int | None) -> None:
    assert isinstance(error_of(_report(status=status, code=code), "gpu-1"), Unknown)


def test_a_playbook_that_never_started_is_a_failure_with_the_output() -> None:
    error = error_of(_report(code=4), "gpu-1")
    assert isinstance(error, Fatal)
    assert error.details is not None
    assert "ERROR! why" in error.details
