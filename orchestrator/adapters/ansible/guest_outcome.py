# SPDX-License-Identifier: Apache-2.0
"""From what a run in a guest reported to results of roles and one of our errors. A guest's words may be lies."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.adapters.ansible.outcome import (
    CODED,
    SAID_BY_ROLE,
    TAIL,
    Failure,
    Row,
    RunReport,
    TaskEnd,
    details_of,
    first_line,
    row,
)
from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown, VgpuctlError
from orchestrator.core.guest.guest import VERSIONS, RoleResult

PREFIX: Final = "vgpuctl_"
"""What the directory of a role has before the name that people use."""
_OF_ROLE: Final = {"vgpuctl_nvidia_host": "guest_driver"}
"""Roles that a guest's uses."""
GUIDE: Final = "docs/howto/provision-guests.md"

_UNREACHABLE: Final[tuple[Row, ...]] = (
    row(
        r"remote host identification has changed|host key verification failed|no .*host key is known",
        Fatal, "guest.key_changed", "the guest answers with another SSH host key than the one it showed first",
        "find out why; if the change is meant, give --new-host-key",
    ),
    row(
        r"permission denied|no such identity|too many authentication failures|error in libcrypto",
        Fatal, "guest.auth_failed", "the guest does not let the site's runs in",
        f"its cloud-init has to have run, with vendor data on; a VM that is older than roles is made anew: {GUIDE}",
    ),
    row(
        r"",
        Retryable, "guest.unreachable", "the guest does not answer over SSH", "look at its console: has it booted?",
    ),
)  # fmt: skip
_FAILED: Final[tuple[Row, ...]] = (
    row(
        r"a (terminal|password) is required|missing sudo password|is not in the sudoers|sudo: command not found",
        Fatal, "guest.sudo_failed", "user vgpuctl may not use sudo in the guest", f"{GUIDE} says what it needs",
    ),
    row(
        r"(could not|failed to|unable to) (get|lock|acquire).*lock|is another process using it|dpkg.*lock",
        Retryable, "guest.package_lock", "another package manager runs in the guest", "wait for it to end",
    ),
    row(
        r"python3?: (not found|no such file)|/usr/bin/python3.*(not found|no such file)|interpreter.*not found",
        Fatal, "guest.no_python", "the guest has no /usr/bin/python3", "install Python 3 in the image",
    ),
)  # fmt: skip
_SAID_BY_ROLE: Final[dict[str, tuple[type[VgpuctlError], str]]] = {
    "guest.no_driver": (Conflict, "run the role guest_driver first"),
    "guest.check_failed": (Fatal, "dmesg in the guest says more"),
    "guest.no_package": (Conflict, f"give the guest or its image a package repository that has it; {GUIDE}"),
    "guest.brings_driver": (
        Conflict,
        f"nothing was installed; give the guest NVIDIA's own package repository; {GUIDE}",
    ),
    "guest.cuda_forbidden": (
        Conflict,
        "nothing was changed; lock an older cuda, or run guest_driver for a newer driver",
    ),
    "guest.containers_failed": (Fatal, "mend it in the guest and run the same command again"),
    "guest.no_mps": (Conflict, "another release of the driver brings it: run guest_driver again"),
    "guest.no_time_slice": (
        Conflict,
        "nothing was changed; the host divides the time of vGPUs, as the offering says",
    ),
    "guest.service_failed": (Fatal, "journalctl -u in the guest says more"),
    "guest.slurm_failed": (Fatal, "nothing was written; give the cluster's munge.key as base64 writes it"),
    "guest.node_failed": (Fatal, "everything is installed; look which package put the program there"),
    "guest.cudnn_failed": (Fatal, "look which package put libcudnn there: dpkg -S or rpm -qf in the guest"),
    "guest.cuda_failed": (Fatal, "look which package put nvcc there: dpkg -S or rpm -qf in the guest"),
}
"""Codes that our roles put in front of a message, as ``[code] text``."""

LONGEST: Final = 400
Text = Annotated[str, Field(max_length=LONGEST)]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    system: Text | None
    kernel: Text | None
    driver: Text | None
    gpus: Annotated[tuple[Text, ...], Field(max_length=64)]
    cuda_driver: Text | None
    cuda_devices: Annotated[tuple[Text, ...], Field(max_length=64)]
    cuda_toolkit: Text | None
    cudnn: Text | None
    nccl: Text | None
    nccl_devices: Annotated[int, Field(ge=1, le=64)] | None


def guest_facts_of(report: RunReport) -> GuestFacts | None:
    """None: nobody asked, or the answer has not the shape that the role's has."""
    try:
        facts = _Facts.model_validate(report.returned.get("guest_facts"))
    except ValidationError:
        return None
    return GuestFacts(**facts.model_dump())


def versions_of(report: RunReport) -> dict[str, str]:
    """What roles told of what they install, by name; an answer of another shape is left out."""
    returned = {name: report.returned.get(name) for name in VERSIONS}
    return {
        name: version for name, version in returned.items() if isinstance(version, str) and 0 < len(version) <= LONGEST
    }


def results_of(report: RunReport, *, at: float, operation: str) -> tuple[RoleResult, ...]:
    """One for each role that has begun, in their order."""
    ours = (task for task in report.tasks if task.role.startswith(PREFIX))
    return tuple(_result(role, list(tasks), at, operation) for role, tasks in groupby(ours, key=_role_of))


def _role_of(task: TaskEnd) -> str:
    """As people call it."""
    return _OF_ROLE.get(task.role, task.role.removeprefix(PREFIX))


def _result(role: str, tasks: list[TaskEnd], at: float, operation: str) -> RoleResult:
    failed = [task.task for task in tasks if task.failed]
    changed = sum(task.changed for task in tasks)
    return RoleResult(
        role=role,
        state="failed" if failed else "changed" if changed else "ok",
        tasks_ok=len(tasks) - len(failed),
        tasks_changed=changed,
        failed_task=failed[0] if failed else None,
        at=at,
        operation=operation,
    )


def guest_error_of(report: RunReport, name: str, guest: str) -> VgpuctlError | None:
    """What went wrong; None when the run is known to have come to its end. ``name``: for people; ``guest``: as the
    inventory has it."""
    if report.failure is not None:
        return _of_failure(report.failure, name)
    if report.status == "successful" and guest in report.hosts_done:
        return None
    if report.status == "timeout":
        return Fatal(
            "guest.too_long", f"the run in {name} took longer than any may", details=report.output[-TAIL:],
            hint="look what the guest is doing, then run it again",
        )  # fmt: skip
    return Unknown(
        "guest.provisioning_unknown", f"the run in {name} ended without a result ({report.status})",
        details=report.output[-TAIL:], hint="run it again: running it twice changes nothing",
    )  # fmt: skip


def _of_failure(failure: Failure, name: str) -> VgpuctlError:
    details = details_of(failure)
    coded = CODED.match(failure.message)
    if coded and coded["code"] in _SAID_BY_ROLE:
        error, hint = _SAID_BY_ROLE[coded["code"]]
        return error(coded["code"], f"{name}: {first_line(coded['text'])}", hint=hint, details=details)
    if coded and coded["code"] in SAID_BY_ROLE:  # of a role that hosts have too
        message = f"{name}: {first_line(coded['text'])} ({coded['code']})"
        return Fatal("guest.driver_failed", message, hint=SAID_BY_ROLE[coded["code"]][1], details=details)
    text = f"{failure.message}\n{failure.output}"
    for cause in _UNREACHABLE if failure.kind == "unreachable" else _FAILED:
        if cause.pattern.search(text):
            return cause.error(cause.code, f"{name}: {cause.message}", hint=cause.hint, details=details)
    return Fatal(
        "guest.provisioning_failed", f"{name}: task {failure.task!r} failed: {first_line(failure.message)}",
        details=details, hint="mend the guest and run the same command again",
    )  # fmt: skip
