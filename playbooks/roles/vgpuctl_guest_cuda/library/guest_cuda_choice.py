# SPDX-License-Identifier: Apache-2.0
"""Says which packages have a CUDA toolkit that goes with the driver that is loaded in the guest. Changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_cuda_choice
short_description: Chooses CUDA toolkits by the guest's driver
description: Fails where no driver is loaded, and where the tables forbid each of the toolkits with it.
author: vgpuctl
options:
  toolkits:
    description: "Newest first: release, oldest_driver that it takes, and row of the table that says so."
    type: list
    elements: dict
    required: true
  root: {description: Below which the kernel's files are looked for., type: path, default: /}
"""

VERSION = re.compile(r"\d{2,4}(\.\d{1,4}){0,2}", re.ASCII)


def driver_of(root: Path) -> str | None:
    """The driver that is loaded; None: none is."""
    try:
        text = (root / "sys/module/nvidia/version").read_text().strip()
    except OSError:
        return None
    return text if VERSION.fullmatch(text) else None


def key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def packages(toolkits: list[dict[str, str]]) -> list[dict[str, str]]:
    """NVIDIA's own before the distribution's."""
    own = [
        {"name": "cuda-toolkit-" + "-".join(one["release"].split(".")[:2]), "release": one["release"]}
        for one in toolkits
    ]
    return own + [{"name": "nvidia-cuda-toolkit", "release": one["release"]} for one in toolkits]


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "toolkits": {"type": "list", "elements": "dict", "required": True},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    driver = driver_of(Path(module.params["root"]))
    if driver is None:
        module.fail_json(msg="[guest.no_driver] no driver of NVIDIA's is loaded in the guest")
    fit = [one for one in module.params["toolkits"] if key(driver) >= key(one["oldest_driver"])]
    if not fit:
        last = module.params["toolkits"][-1]
        module.fail_json(
            msg=f"[guest.cuda_forbidden] CUDA {last['release']} needs driver {last['oldest_driver']} or newer and the"
            f" guest has {driver} (driver_matrix.csv, row {last['row']})"
        )
    module.exit_json(changed=False, packages=packages(fit))


if __name__ == "__main__":
    main()
