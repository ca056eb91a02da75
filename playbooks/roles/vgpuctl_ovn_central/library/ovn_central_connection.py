# SPDX-License-Identifier: Apache-2.0
"""Keeps where OVN's databases answer clients, and asks whether they do.

Runs on a central server, under any Python that Ansible supports there."""

from __future__ import annotations

import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: ovn_central_connection
short_description: Keeps where OVN's databases answer
description: >-
  It waits until its own server does, and until a majority of a cluster is there. C([host.ovn_silent] text) says what
  has become of the one that does not: ovn-central.service stays active whatever ends that it began.
author: vgpuctl
options:
  wanted:
    description: "Each with tool (ovn-nbctl, ovn-sbctl) and words: without C(as_client) those of its set-connection."
    type: list
    elements: dict
    required: true
  as_client:
    description: "Nothing is kept: the words are how a client asks."
    type: bool
    default: false
  timeout_s: {description: How long is waited for each., type: int, default: 60}
"""

UNITS = {"ovn-nbctl": "ovn-ovsdb-server-nb.service", "ovn-sbctl": "ovn-ovsdb-server-sb.service"}


def asked(module: AnsibleModule, tool: str, words: list[str], until: float) -> str:
    """What it prints; the run ends where it cannot be asked in time."""
    while True:
        code, out, err = module.run_command([tool, "--no-leader-only", "--timeout=10", *words])
        if code == 0:
            return str(out).strip()
        if time.monotonic() > until:
            said = one_line(err or out)
            module.fail_json(msg=f"[host.ovn_silent] {said}; {become_of(module, UNITS[tool])}")
        time.sleep(0.5)


def become_of(module: AnsibleModule, unit: str) -> str:
    """The unit's state, and the last that it said."""
    _, out, _ = module.run_command(["systemctl", "show", unit, "--property=ActiveState", "--property=Result"])
    shown = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    state, result = shown.get("ActiveState") or "unknown", shown.get("Result") or "success"
    _, last, _ = module.run_command(["journalctl", f"--unit={unit}", "--lines=1", "--output=cat", "--quiet"])
    return f"{unit} is {state}{'' if result == 'success' else f' ({result})'}: {one_line(last) or 'it said nothing'}"


def one_line(text: str) -> str:
    return " ".join(text.split())[-200:]


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "wanted": {"type": "list", "elements": "dict", "required": True},
            "as_client": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 60},
        }
    )
    changed = []
    for each in module.params["wanted"]:
        tool, words = each["tool"], each["words"]
        until = time.monotonic() + module.params["timeout_s"]
        if module.params["as_client"]:
            asked(module, tool, [*words, "get-connection"], until)
            continue
        known = asked(module, tool, ["get-connection"], until).replace('"', "").split()
        if sorted(word for word in known if word != "read-write") != sorted(words):
            asked(module, tool, ["set-connection", *words], until)
            changed.append(tool)
    module.exit_json(changed=bool(changed), tools=changed)


if __name__ == "__main__":
    main()
