# SPDX-License-Identifier: Apache-2.0
"""Keeps where OVN's databases answer clients.

Runs on a central server, under any Python that Ansible supports there."""

from __future__ import annotations

import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: ovn_central_connection
short_description: Keeps where OVN's databases answer
description: It waits until its own server does, and until a majority of a cluster is there.
author: vgpuctl
options:
  wanted:
    description: "Each with tool (ovn-nbctl, ovn-sbctl) and the words of its set-connection."
    type: list
    elements: dict
    required: true
  timeout_s: {description: How long is waited., type: int, default: 60}
"""


def asked(module: AnsibleModule, tool: str, words: list[str], until: float) -> str:
    """What it prints; the run ends where it cannot be asked in time."""
    while True:
        code, out, err = module.run_command([tool, "--no-leader-only", "--timeout=10", *words])
        if code == 0:
            return str(out).strip()
        if time.monotonic() > until:
            module.fail_json(msg=f"[host.ovn_silent] {tool} {words[0]}: {(err or out).strip()[-200:]}")
        time.sleep(0.5)


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "wanted": {"type": "list", "elements": "dict", "required": True},
            "timeout_s": {"type": "int", "default": 60},
        }
    )
    changed = []
    for each in module.params["wanted"]:
        tool, words = each["tool"], each["words"]
        until = time.monotonic() + module.params["timeout_s"]
        known = asked(module, tool, ["get-connection"], until).replace('"', "").split()
        if sorted(word for word in known if word != "read-write") != sorted(words):
            asked(module, tool, ["set-connection", *words], until)
            changed.append(tool)
    module.exit_json(changed=bool(changed), tools=changed)


if __name__ == "__main__":
    main()
