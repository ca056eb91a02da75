# SPDX-License-Identifier: Apache-2.0
"""Asks cuDNN's library in a guest for its version (cuDNN API: cudnnGetVersion). Changes nothing."""

from __future__ import annotations

import ctypes

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_cudnn
short_description: Asks cuDNN for its version
description: Tells also how packages of the guest are made up. Fails where another one than the wanted answers, or none.
author: vgpuctl
options:
  wanted: {description: The version that has to answer; empty means any or none., type: str, default: ""}
"""

RELEASES = (9, 8)
"""Of which the library carries the number in its name."""


def version() -> str | None:
    """None: there is no cuDNN that can be loaded."""
    for release in RELEASES:
        try:
            told = ctypes.CDLL(f"libcudnn.so.{release}").cudnnGetVersion
        except (OSError, AttributeError):
            continue
        told.restype = ctypes.c_size_t
        number, unit = int(told()), 10000 if release >= 9 else 1000
        return f"{number // unit}.{number % unit // 100}.{number % 100}"
    return None


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(argument_spec={"wanted": {"type": "str", "default": ""}}, supports_check_mode=True)
    wanted, found = module.params["wanted"], version()
    right = found is not None and f"{wanted}.".startswith(f"{found}.")
    if wanted and not right and not module.check_mode:
        module.fail_json(msg=f"[guest.cudnn_failed] cuDNN {wanted} is installed and {found or 'none'} answers")
    packages = "deb" if module.get_bin_path("apt-get") else "rpm"
    module.exit_json(changed=False, cudnn=found, format=packages)


if __name__ == "__main__":
    main()
