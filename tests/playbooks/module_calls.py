# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.playbooks.module_calls``: modules of the collection one after the other, each in a process of its
own and with its parameters as Ansible gives them. A line of JSON each, as the module answers."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

MODULES = "ansible_collections.vgpuctl.cloud.plugins.modules"


def main() -> None:
    wanted = json.load(sys.stdin)
    given = import_module("ansible.module_utils.testing").patch_module_args
    import_module(f"{MODULES}.vm_info")  # what all have in common is loaded once
    for module, parameters in wanted["tasks"]:
        if os.fork() == 0:
            with given({**parameters, "_ansible_check_mode": wanted["check"], "_ansible_diff": True}):
                import_module(f"{MODULES}.{module}").main()
            os._exit(9)  # it has to answer
        os.wait()


if __name__ == "__main__":
    main()
