# SPDX-License-Identifier: Apache-2.0
"""Directories and small files in one round trip: a host far away, or a slow one, is asked once and not ten times."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: file_set
short_description: Keeps a set of directories and small text files as given
description: Each file is replaced atomically, and only when its content differs. C(paths) returns what was changed.
author: vgpuctl
options:
  directories: {description: "Each with path and mode; missing parents are made.", type: list, elements: dict}
  files: {description: "Each with path, mode and content.", type: list, elements: dict}
  owner: {description: User who owns all of them., type: str, default: root}
  group: {description: Group of all of them., type: str, default: root}
  absent: {description: Files and whole directories that must not be there., type: list, elements: path}
"""

ENTRY = {"path": {"type": "path", "required": True}, "mode": {"type": "str", "required": True}}


def set_mode(module: AnsibleModule, path: Path, mode: str) -> bool:
    wanted = module.load_file_common_arguments(
        {"mode": mode, "owner": module.params["owner"], "group": module.params["group"]}, path=str(path)
    )
    return bool(module.set_fs_attributes_if_different(wanted, False))


def keep_directory(module: AnsibleModule, path: Path, mode: str) -> bool:
    made = not path.is_dir()
    if made and module.check_mode:
        return True
    path.mkdir(parents=True, exist_ok=True)
    return set_mode(module, path, mode) or made


def keep_file(module: AnsibleModule, path: Path, mode: str, content: str) -> bool:
    differs = not path.is_file() or path.read_bytes() != content.encode()
    if differs and module.check_mode:
        return True
    if differs:
        handle, fresh = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode())
        module.atomic_move(fresh, str(path))
    return set_mode(module, path, mode) or differs


def remove(module: AnsibleModule, path: Path) -> bool:
    if not path.exists() and not path.is_symlink():
        return False
    if module.check_mode:
        return True
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    return True


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "options": ENTRY, "default": []},
            "files": {
                "type": "list",
                "elements": "dict",
                "options": {**ENTRY, "content": {"type": "str", "required": True}},
                "default": [],
            },
            "absent": {"type": "list", "elements": "path", "default": []},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str", "default": "root"},
        },
        supports_check_mode=True,
    )
    given = module.params
    paths = [each["path"] for each in given["directories"] if keep_directory(module, Path(each["path"]), each["mode"])]
    paths += [
        each["path"] for each in given["files"] if keep_file(module, Path(each["path"]), each["mode"], each["content"])
    ]
    paths += [path for path in given["absent"] if remove(module, Path(path))]
    module.exit_json(changed=bool(paths), paths=paths)


if __name__ == "__main__":
    main()
