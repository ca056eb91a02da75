# SPDX-License-Identifier: Apache-2.0
"""Asks the CUDA compiler of a guest for its version. Changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_nvcc
short_description: Asks nvcc for its version
description: Fails where there is none, or where it does not answer.
author: vgpuctl
options:
  root: {description: Below which NVIDIA's packages put it., type: path, default: /}
"""


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    own = sorted(Path(module.params["root"]).glob("usr/local/cuda*/bin"))
    nvcc = module.get_bin_path("nvcc", opt_dirs=[str(path) for path in own])
    out = module.run_command([nvcc, "--version"])[1] if nvcc else ""
    found = re.search(r"release (\d+\.\d+)", out)
    if found is None:
        module.fail_json(msg="[guest.cuda_failed] nvcc does not answer", stdout=out)
    module.exit_json(changed=False, cuda_toolkit=found[1])


if __name__ == "__main__":
    main()
