# SPDX-License-Identifier: Apache-2.0
"""The host is rebooted by its own systemd, in a moment: the answer gets out first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.agent.libvirt.domains import Domains
from orchestrator.agent.paths import Paths
from orchestrator.agent.process import ChildHangs, run
from orchestrator.agent.sysfs.machine import boot_id
from orchestrator.core.actions.host_actions import ActionResult, HostAction
from orchestrator.core.actions.reboots import RebootHost
from orchestrator.core.errors import Conflict, Fatal, Unknown

_IN_A_MOMENT: Final = ("--collect", "--on-active=2", "--timer-property=AccuracySec=100ms", "systemctl", "reboot")
_LIMIT_S: Final = 20.0


@dataclass(frozen=True)
class Reboots:
    paths: Paths
    domains: Domains

    @property
    def handlers(self) -> Mapping[type[HostAction], Callable[..., ActionResult]]:
        return {RebootHost: self.reboot}

    def reboot(self, action: RebootHost) -> ActionResult:
        """:raises Conflict: ``host.in_use``: a domain runs, or cannot be read; :raises Fatal: ``host.reboot_refused``
        :raises Unknown: ``host.reboot_hangs``"""
        if boot_id(self.paths) != action.boot:
            return ActionResult(changed=False)
        unread = list[str]()
        running = [domain.name for domain in self.domains.snapshots(unread.append) if domain.active]
        if running or unread:
            words = f"the host runs {', '.join(running)}" if running else unread[0]
            raise Conflict("host.in_use", words, hint="stop it first: the host's reboot would end it")
        try:
            ended = run([str(self.paths.root / "usr/bin/systemd-run"), *_IN_A_MOMENT], limit_s=_LIMIT_S)
        except ChildHangs as error:
            raise Unknown("host.reboot_hangs", "systemd-run does not end", details=str(error)) from error
        except OSError as error:
            raise _refused(str(error)) from error
        if ended.code:
            raise _refused(ended.output)
        return ActionResult(changed=True)


def _refused(details: str) -> Fatal:
    return Fatal(
        "host.reboot_refused", "the host's systemd does not reboot it", details=details,
        hint="reboot it by hand; 'systemctl status' on the host says what is wrong",
    )  # fmt: skip
