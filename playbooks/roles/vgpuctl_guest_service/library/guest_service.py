# SPDX-License-Identifier: Apache-2.0
"""Keeps a service of a guest, or of a host, running with the newest of its files.

Runs there, under any Python that Ansible supports there. It is restarted when one of its files is younger than
its process, and so also when an earlier run was cut off between the two. Nothing is remembered for that.
"""

from __future__ import annotations

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_service
short_description: Keeps a service running with the newest of its files
description: A failure begins with its code, as C([guest.service_failed] text), C([host.service_failed] text) on a host.
author: vgpuctl
options:
  name: {description: The unit., type: str, required: true}
  files: {description: What it reads when it starts., type: list, elements: path, default: []}
  of: {description: Whose service it is., type: str, choices: [guest, host], default: guest}
"""

LONGEST = 300


class Service:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.name = module.params["name"]
        self.of = module.params["of"]

    def fail(self, text: str) -> None:
        self.module.fail_json(msg=f"[{self.of}.service_failed] {text}")

    def call(self, *words: str) -> str:
        """What systemctl prints. What it complains of ends the run."""
        code, out, err = self.module.run_command(["systemctl", *words])
        if code != 0:
            said = (err or out).strip()[-LONGEST:]
            self.fail(f"systemctl {' '.join(words[:2])} failed: {said}")
        return str(out)

    def shown(self) -> dict[str, str]:
        wanted = "LoadState,ActiveState,UnitFileState,ActiveEnterTimestampMonotonic,NeedDaemonReload"
        lines = self.call("show", self.name, f"--property={wanted}").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def began(self, shown: dict[str, str]) -> float:
        """When it became active, as the wall clock has it now."""
        return time.time() - time.monotonic() + int(shown.get("ActiveEnterTimestampMonotonic") or 0) / 1e6


def _is_old(service: Service, shown: dict[str, str]) -> bool:
    if shown.get("ActiveState") != "active":
        return True
    began = service.began(shown)
    return any(Path(file).stat().st_mtime > began for file in service.module.params["files"] if Path(file).exists())


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
            "of": {"type": "str", "choices": ["guest", "host"], "default": "guest"},
        },
        supports_check_mode=True,
    )
    service = Service(module)
    shown = service.shown()
    reload = shown.get("NeedDaemonReload") == "yes" or shown.get("LoadState") == "not-found"
    if reload and not module.check_mode:
        service.call("daemon-reload")
        shown = service.shown()
    if shown.get("LoadState") != "loaded":
        service.fail(f"the {service.of} has no service {service.name}")
    begin, enable = _is_old(service, shown), shown.get("UnitFileState") == "disabled"
    if not module.check_mode:
        if enable:
            service.call("enable", service.name)
        if begin:
            service.call("restart", service.name)
    module.exit_json(changed=begin or enable)


if __name__ == "__main__":
    main()
