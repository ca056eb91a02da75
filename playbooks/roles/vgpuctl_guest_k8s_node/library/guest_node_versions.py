# SPDX-License-Identifier: Apache-2.0
"""Asks the programs of a Kubernetes node for their versions. Runs in the guest and changes nothing."""

from __future__ import annotations

import re

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_node_versions
short_description: Asks kubelet, containerd, device plugin and container toolkit for their versions
description: Fails where one of them does not answer, with C([guest.node_failed] text).
author: vgpuctl
options: {}
"""

PROGRAMS = {
    "containerd": "containerd",
    "kubelet": "kubelet",
    "device_plugin": "nvidia-device-plugin",
    "container_toolkit": "nvidia-ctk",
}
VERSION = re.compile(r"\bv?(\d+\.\d+[0-9A-Za-z.+~-]*)")
LONGEST = 300


def version(module: AnsibleModule, program: str) -> str:
    """As it says itself."""
    code, out, err = module.run_command([program, "--version"])
    found = VERSION.search(out)
    if code != 0 or found is None:
        said = (err or out).strip()[-LONGEST:]
        module.fail_json(msg=f"[guest.node_failed] {program} --version does not answer: {said}", stderr=err)
    return found[1]


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, **{name: version(module, program) for name, program in PROGRAMS.items()})


if __name__ == "__main__":
    main()
