# SPDX-License-Identifier: Apache-2.0
"""From what a playbook run reported to one of our errors, by table.

A run reports itself line by line (inside.py). Machines have a say in it, so that nothing of it is believed: it is
bounded before it is parsed, and has no control characters when it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from orchestrator.core.errors import Conflict, Fatal, Retryable, Unknown, VgpuctlError, one_line

TAIL = 2000
"""How much of a long output an operator gets, in characters, from its end."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The event that ended the play. ``output`` is what the module wrote to stderr or stdout, if anything."""

    kind: Literal["unreachable", "failed"]
    task: str
    message: str
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class TaskEnd:
    """How one task ended. ``role``: the role it is of, or ""."""

    role: str
    task: str
    changed: bool
    failed: bool


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """A run of ansible-playbook. ``status`` and ``return_code`` are ansible-runner's, or play.py's of one that was
    ended. Texts are bounded and have no control characters (Told)."""

    status: str
    return_code: int | None
    failure: Failure | None
    hosts_done: tuple[str, ...]
    """Hosts that the final statistics count as processed without failure."""
    output: str
    returned: dict[str, object] = field(default_factory=dict)
    """What modules of ours returned beside ``changed``, by name; of one name the last."""
    tasks: tuple[TaskEnd, ...] = ()
    """Those that were not skipped, in their order."""


@dataclass(frozen=True)
class Row:
    """If ``pattern`` is found in the failure's text, this is the error."""

    pattern: re.Pattern[str]
    error: type[VgpuctlError]
    code: str
    message: str
    hint: str


def row(pattern: str, error: type[VgpuctlError], code: str, message: str, hint: str) -> Row:
    return Row(re.compile(pattern, re.IGNORECASE), error, code, message, hint)


_UNREACHABLE = (
    row(
        r"remote host identification has changed|host key verification failed|no .*host key is known",
        Fatal, "host.key_changed", "the host answers with another SSH host key than the pinned one",
        "find out why; if the change is meant, remove the host and add it again",
    ),
    row(
        r"permission denied|no such identity|too many authentication failures|invalid privatekey|error in libcrypto",
        Fatal, "host.auth_failed", "the host does not accept the provisioning key",
        "check --user and --provisioning-key: ssh -i KEY USER@ADDRESS must log in without a question",
    ),
    row(
        r"",
        Retryable, "host.unreachable", "the host does not answer over SSH", "check address, port and the host itself",
    ),
)  # fmt: skip

_FAILED = (
    row(
        r"a (terminal|password) is required|missing sudo password|is not in the sudoers|sudo: command not found",
        Fatal, "host.sudo_failed", "the provisioning user may not use sudo without a password",
        "allow it in sudoers (NOPASSWD) or enrol with --user root",
    ),
    row(
        r"(could not|failed to|unable to) (get|lock|acquire).*lock|is another process using it|dpkg.*lock",
        Retryable, "host.package_lock", "another package manager runs on the host", "wait for it to end",
    ),
    row(
        r"python3?: (not found|no such file)|/usr/bin/python3.*(not found|no such file)|interpreter.*not found",
        Fatal, "host.unsupported", "the host has no /usr/bin/python3", "install Python 3.10 or newer on the host",
    ),
)  # fmt: skip

SAID_BY_ROLE: dict[str, tuple[type[VgpuctlError], str]] = {
    "host.other_site": (Conflict, "give it back there first, or enrol with --take-over"),
    "host.has_vms": (Conflict, "delete or move the VMs first"),
    "host.unsupported": (Fatal, "see docs/howto/enrol-a-host.md for what a host needs"),
    "host.libvirt_not_running": (Fatal, "install and start libvirt on the host"),
    "host.no_such_gpu": (Conflict, "lspci -D -d 10de: on the host lists its GPUs"),
    "host.no_iommu": (Fatal, "switch VT-d or AMD-Vi on in the firmware"),
    "host.package_lock": (Retryable, "wait until the other package manager on the host has ended"),
    "bundle.damaged": (Retryable, "it is sent again; if that does not help, look at the host's disk"),
    "driver.module_busy": (Conflict, "end what uses the driver; nothing was changed"),
    "host.reboot_refused": (Fatal, "reboot the host by hand, then run it again"),
    "host.not_back": (Fatal, "look at the host's console; when it answers again, run it again"),
    "driver.headers_missing": (Fatal, "install the headers of the kernel that runs (linux-headers, kernel-devel)"),
    "driver.dkms_failed": (Fatal, "/var/log/nvidia-installer.log and /var/lib/dkms on the host say why"),
    "driver.secure_boot": (Fatal, "enrol the key that the module is signed with (mokutil --import), or switch it off"),
    "driver.install_failed": (Fatal, "/var/log/nvidia-installer.log on the host says why"),
    "driver.not_loaded": (Fatal, "dmesg on the host says why"),
    "driver.version_differs": (Fatal, "another package keeps an older module: modinfo nvidia on the host shows it"),
    "driver.fabric_manager_missing": (Fatal, "lock fabric_manager in the driver's version and add its bundle"),
    "driver.fabric_manager_differs": (Fatal, "it must have the driver's version: look which package installed it"),
    "host.foreign_ovn": (Conflict, "'vgpuctl host set NAME --unlabel ovn' leaves it there; or take it out of that one"),
    "host.ovn_address": (Fatal, "give it one address in ovn_encapsulation_network"),
    "host.ovn_mtu": (Fatal, "let that network card, and the switches behind it, pass larger packets"),
    "host.ovn_bridge": (Fatal, "make the bridge of ovn_bridge_mappings, with the network card that leads outside"),
    "host.ovn_key": (Fatal, "look at openssl and at /etc/ovn on the host"),
    "host.ovs_silent": (Fatal, "systemctl status openvswitch-switch on the host says more"),
    "host.network_unknown": (Fatal, "install iproute2 on the host"),
    "host.no_package": (Fatal, "give it a repository that has Open vSwitch and OVN, as its own system's has"),
    "host.brings_driver": (Fatal, "look at the host's repositories: none of OVN's packages needs a driver"),
    "host.service_failed": (Fatal, "journalctl on the host says more"),
    "host.agent_damaged": (Fatal, "nothing was changed; run it again"),
    "host.agent_not_running": (Fatal, "journalctl -u vgpuctl-agent on the host says more"),
}
"""Codes that our role puts in front of a message, as ``[code] text``."""

CODED = re.compile(r"^\[(?P<code>[a-z_.]+)\] (?P<text>.*)", re.DOTALL)


def error_of(report: RunReport, host: str) -> VgpuctlError | None:
    """What went wrong on ``host``; None when the run is known to have succeeded there.

    A run that ended without final statistics proves nothing: its effect is :class:`Unknown`.
    """
    if report.failure is not None:
        return _of_failure(report.failure, host)
    if report.status == "successful" and host in report.hosts_done:
        return None
    details = f"status {report.status}, exit code {report.return_code}\n{report.output[-TAIL:]}".strip()
    if (
        report.status == "failed"
        and report.return_code is not None
        and report.return_code > 0
        and not report.hosts_done
    ):
        return Fatal(
            "host.provisioning_failed", f"the playbook could not be run on {host}", details=details,
            hint="the operation's details have Ansible's output: 'vgpuctl operation show ID'",
        )  # fmt: skip
    return Unknown(
        "host.provisioning_unknown", f"the playbook on {host} ended without a result ({report.status})",
        details=details, hint="it is run again: running it twice changes nothing",
    )  # fmt: skip


def _of_failure(failure: Failure, host: str) -> VgpuctlError:
    details = details_of(failure)
    coded = CODED.match(failure.message)
    if coded and coded["code"] in SAID_BY_ROLE:
        error, hint = SAID_BY_ROLE[coded["code"]]
        message = f"{host}: {first_line(coded['text'])}"
        return error(coded["code"], message, hint=hint.replace("NAME", host), details=details)
    text = f"{failure.message}\n{failure.output}"
    for cause in _UNREACHABLE if failure.kind == "unreachable" else _FAILED:
        if cause.pattern.search(text):
            return cause.error(cause.code, f"{host}: {cause.message}", hint=cause.hint, details=details)
    return Fatal(
        "host.provisioning_failed", f"{host}: task {failure.task!r} failed: {first_line(failure.message)}",
        details=details, hint="mend the host and run the same command again",
    )  # fmt: skip


def details_of(failure: Failure) -> str:
    tails = failure.message[-TAIL:], failure.output[-TAIL:]
    return "\n".join(filter(None, (f"task: {failure.task}", *tails)))


def first_line(text: str) -> str:
    """For a message: bounded, and printable."""
    return one_line(next((line.strip() for line in text.splitlines() if line.strip()), "no message"))


MAX_LINE_BYTES: Final = 512 * 1024
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of all lines of a run together."""

Title = Annotated[str, Field(max_length=310)]
Text = Annotated[str, Field(max_length=4100)]


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Ended(_Told):
    role: Title
    task: Title
    changed: bool
    failed: bool


class _Failed(_Told):
    kind: Literal["unreachable", "failed"]
    task: Title
    message: Text
    output: Text


class Record(_Told):
    """One line. ``begins``: the title of a task. ``good``: in the end no task had failed that nobody rescued."""

    begun: bool = False
    begins: Title | None = None
    ended: _Ended | None = None
    returned: dict[str, JsonValue] = {}
    failure: _Failed | None = None
    good: bool = False
    done: tuple[Title, ...] | None = None
    output: str = ""
    status: Title | None = None
    return_code: int | None = None


def plain(text: str) -> str:
    """Without what a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text.replace("\r\n", "\n"))


def _plain_value(value: JsonValue) -> JsonValue:
    """Deeper than the parser lets through it never is."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    if isinstance(value, dict):
        return {plain(name): _plain_value(item) for name, item in value.items()}
    return value


@dataclass
class Told:
    """All that a run has told so far; ``progress`` gets the title of each task as it begins."""

    progress: Callable[[str], None]
    begun: bool = False
    failure: Failure | None = None
    done: tuple[str, ...] = ()
    status: str | None = None
    return_code: int | None = None
    output: list[str] = field(default_factory=list)
    returned: dict[str, object] = field(default_factory=dict)
    tasks: list[TaskEnd] = field(default_factory=list)

    def take(self, line: bytes) -> None:
        """A line that is no record is what a program printed that went wrong."""
        try:
            self._follow(Record.model_validate_json(line))
        except ValidationError:
            self.output.append(plain(line.decode("utf-8", "replace")))

    def _follow(self, record: Record) -> None:
        self.begun = self.begun or record.begun
        if record.begins is not None:
            self.progress(plain(record.begins))
        if record.ended is not None:
            ended = {name: plain(text) for name, text in record.ended.model_dump(include={"role", "task"}).items()}
            self.tasks.append(TaskEnd(**ended, changed=record.ended.changed, failed=record.ended.failed))
        self.returned.update({name: _plain_value(value) for name, value in record.returned.items()})
        if record.failure is not None:
            words = {name: plain(text) for name, text in record.failure.model_dump(exclude={"kind"}).items()}
            self.failure = Failure(kind=record.failure.kind, **words)
        if record.good:
            self.failure = None
        if record.done is not None:
            self.done = tuple(plain(name) for name in record.done)
        if record.output:
            self.output.append(plain(record.output))
        if record.status is not None:
            self.status, self.return_code = plain(record.status), record.return_code

    def report(self, status: str | None, return_code: int | None) -> RunReport:
        """``status``: why the run was ended; None: it ended by itself. ``return_code``: of the process."""
        return RunReport(
            status=status or self.status or "died",
            return_code=self.return_code if self.status is not None else return_code,
            failure=self.failure,
            hosts_done=self.done,
            output="\n".join(self.output),
            returned=self.returned,
            tasks=tuple(self.tasks),
        )
