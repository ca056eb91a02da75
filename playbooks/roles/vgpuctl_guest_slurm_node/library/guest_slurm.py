# SPDX-License-Identifier: Apache-2.0
"""Writes the munge key of a Slurm cluster, and gres.conf from the GPUs that a guest really has.

Runs in the guest, under any Python that Ansible supports there. The device files are what Slurm counts and gives to
jobs; a guest has one for each vGPU or GPU once its driver is loaded.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_slurm
short_description: Keeps a guest's munge key and gres.conf
description: A failure begins with its code, as C([guest.slurm_failed] text).
author: vgpuctl
options:
  root: {description: Below which the files and the devices are., type: path, default: /}
  munge_key: {description: In base64; empty keeps the one that is there., type: str, default: ""}
"""

SHORTEST_KEY = 32
"""Bytes that munge takes at least."""


class Files:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = Path(module.params["root"])

    def gres(self) -> str:
        """A line for each device, in the order of their numbers."""
        there = [path.name for path in (self.root / "dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
        if not there:
            self.module.fail_json(msg="[guest.no_driver] the guest has no /dev/nvidia0: does nvidia-smi answer?")
        names = sorted(there, key=lambda name: int(name.removeprefix("nvidia")))
        lines = [f"Name=gpu File={self.root.joinpath('dev', name)}" for name in names]
        return "\n".join(["# Written by vgpuctl: vm provision writes it again.", *lines, ""])

    def key(self) -> bytes | None:
        """None: the one that is there stays."""
        text = "".join(self.module.params["munge_key"].split())
        if not text:
            return None
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            self.module.fail_json(msg="[guest.slurm_failed] the munge key is not in base64")
        if len(key) < SHORTEST_KEY:
            self.module.fail_json(msg=f"[guest.slurm_failed] the munge key has fewer than {SHORTEST_KEY} bytes")
        return key

    def put(self, name: str, content: bytes, mode: int) -> bool:
        """Owned as its directory is: munge reads its own files only. Whether that changed anything."""
        path = self.root / name
        if self.is_there(path, content, mode):
            return False
        if not self.module.check_mode:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            fresh = Path(self.module.tmpdir) / path.name
            fresh.write_bytes(content)
            fresh.chmod(mode)
            self.module.atomic_move(str(fresh), str(path))
            path.chmod(mode)
            around = path.parent.stat()
            os.chown(path, around.st_uid, around.st_gid)
        return True

    def is_there(self, path: Path, content: bytes, mode: int) -> bool:
        if not path.exists() or path.read_bytes() != content:
            return False
        has, around = path.stat(), path.parent.stat()
        return (has.st_mode & 0o777, has.st_uid, has.st_gid) == (mode, around.st_uid, around.st_gid)


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "munge_key": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    files = Files(module)
    key, gres = files.key(), files.gres()
    changed = [files.put("etc/slurm/gres.conf", gres.encode(), 0o644)]
    if key is not None:
        changed.append(files.put("etc/munge/munge.key", key, 0o400))
    module.exit_json(changed=any(changed))


if __name__ == "__main__":
    main()
