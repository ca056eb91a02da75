# SPDX-License-Identifier: Apache-2.0
"""The agent's account, files and service in one round trip: a slow or distant host is asked once, not ten times.

Runs on the host, under any Python that Ansible supports there.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import re
import signal
import stat
import tempfile
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: agent_installation
short_description: Keeps the agent's account, directories, files and service as given, or removes them
description: Each file is replaced atomically, and only when it differs. C(changes) returns what was changed.
author: vgpuctl
options:
  state: {description: Whether it is there., type: str, choices: [present, absent], default: present}
  site: {description: "Whose host it becomes: id, config (where an earlier site is read), take_over, lock.", type: dict}
  account: {description: "The account that reaches the agent, with name and home.", type: dict}
  directories: {description: "Each with path and mode; missing parents are made.", type: list, elements: dict}
  files: {description: "Each with path, mode, content or content_base64, sha256 of it.", type: list, elements: dict}
  absent: {description: Files and whole directories that are removed., type: list, elements: path}
  service: {description: "With name and socket: restarted after a change, then the socket is waited for.", type: dict}
  owner: {description: User who owns the files., type: str, default: root}
  group: {description: Group of the files., type: str, default: root}
"""

PATH_AND_MODE = {"path": {"type": "path", "required": True}, "mode": {"type": "str", "required": True}}
OPTIONS = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "site": {
        "type": "dict",
        "options": {
            "id": {"type": "str"},
            "config": {"type": "path"},
            "take_over": {"type": "bool"},
            "lock": {"type": "path"},
        },
    },
    "account": {"type": "dict", "options": {"name": {"type": "str"}, "home": {"type": "path"}}},
    "directories": {"type": "list", "elements": "dict", "options": PATH_AND_MODE, "default": []},
    "files": {
        "type": "list",
        "elements": "dict",
        "options": {
            **PATH_AND_MODE,
            "content": {"type": "str"},
            "content_base64": {"type": "str"},
            "sha256": {"type": "str"},
        },
        "default": [],
    },
    "absent": {"type": "list", "elements": "path", "default": []},
    "service": {"type": "dict", "options": {"name": {"type": "str"}, "socket": {"type": "path"}}},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
}
START_LIMIT_S = 300
POLL_S = 0.2


def processes_of(uid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
        except FileNotFoundError:
            continue
    return found


def end_processes(uid: int) -> None:
    """Hangs up what still runs as ``uid``; kills what does not listen."""
    for end, timeout_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        for pid in processes_of(uid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, end)
        deadline = time.monotonic() + timeout_s
        while processes_of(uid) and time.monotonic() < deadline:
            time.sleep(POLL_S)


class Installation:
    """Brings one host to the wanted state and remembers what that took."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.given = module.params
        self.changes: list[str] = []

    def run(self, *argv: str, may_fail: bool = False) -> str:
        """A command's output; the play fails with its words when it does."""
        code, out, err = self.module.run_command(list(argv))
        if code != 0 and not may_fail:
            self.module.fail_json(msg=f"{' '.join(argv)}: {err.strip() or out.strip()}", stderr=err)
        return str(out)

    def claim(self) -> None:
        """Looks once more, and holds others off while this runs: two controllers may have checked at the same time."""
        site = self.given["site"]
        lock = os.open(site["lock"], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)  # let go when the process ends
        fcntl.flock(lock, fcntl.LOCK_EX)
        config = Path(site["config"])
        found = json.loads(config.read_text(encoding="utf-8")).get("site") if config.exists() else None
        if found not in {None, site["id"]} and not site["take_over"]:
            self.module.fail_json(msg=f"[host.other_site] the host obeys site {found}")

    def keep_account(self) -> None:
        """A system account that nobody can log in to by password; its shell only runs the forced command."""
        account = self.given["account"]
        options = ["--home-dir", account["home"], "--shell", "/bin/sh", "--comment", "vgpuctl agent"]
        try:
            entry = pwd.getpwnam(account["name"])
        except KeyError:
            self.changes.append(account["name"])
            self.run(
                "useradd", "--system", "--user-group", "--no-create-home", "--password", "*", *options, account["name"]
            )
            return
        if (entry.pw_dir, entry.pw_shell) != (account["home"], "/bin/sh"):
            self.changes.append(account["name"])
            self.run("usermod", "--home", account["home"], "--shell", "/bin/sh", account["name"])

    def remove_account(self) -> None:
        """Controllers may still be connected as this account; without its keys they do not come back."""
        name = self.given["account"]["name"]
        for entry in pwd.getpwall():
            if entry.pw_name == name:
                self.changes.append(name)
                end_processes(entry.pw_uid)
                self.run("userdel", name)

    def keep_directory(self, path: Path, mode: str) -> None:
        made = not path.is_dir()
        path.mkdir(parents=True, exist_ok=True)
        if self._set_mode(path, mode) or made:
            self.changes.append(str(path))

    def keep_file(self, path: Path, mode: str, content: bytes) -> None:
        differs = not path.is_file() or path.read_bytes() != content
        if differs:
            handle, fresh = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            self.module.atomic_move(fresh, str(path))
        if self._set_mode(path, mode) or differs:
            self.changes.append(str(path))

    def _set_mode(self, path: Path, mode: str) -> bool:
        owners = {"owner": self.given["owner"], "group": self.given["group"]}
        wanted = self.module.load_file_common_arguments({"mode": mode, **owners}, path=str(path))
        return bool(self.module.set_fs_attributes_if_different(wanted, False))

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            self._remove_directory(path)
        elif path.exists() or path.is_symlink():
            path.unlink()
        else:
            return
        self.changes.append(str(path))

    def _remove_directory(self, directory: Path) -> None:
        """Looks at each directory once more before anything in it goes: a pool may be mounted while this runs."""
        emptied = []
        for top, below, names, handle in os.fwalk(directory):
            self.check_unmounted([top])
            links = [name for name in below if stat.S_ISLNK(os.lstat(name, dir_fd=handle).st_mode)]
            for name in (*names, *links):
                os.unlink(name, dir_fd=handle)
            emptied.append(top)
        for top in reversed(emptied):
            Path(top).rmdir()

    def check_unmounted(self, paths: list[str]) -> None:
        """What is in a pool is other hosts' too, and nothing may walk into it to remove it."""
        mounted = mounted_below(paths)
        if mounted:
            self.module.fail_json(msg=f"unmount {', '.join(mounted[:5])} first: nothing that is mounted is removed")

    def keep_service(self) -> None:
        """Runs with what is on the disk now; the play fails with its last words when it does not come up."""
        name, socket = self.given["service"]["name"], Path(self.given["service"]["socket"])
        if self.changes:
            self.run("systemctl", "daemon-reload")
            self.run("systemctl", "enable", "--quiet", name)
            self.run("systemctl", "restart", name)
        elif self.run("systemctl", "is-active", name, may_fail=True).strip() != "active":
            self.changes.append(name)
            self.run("systemctl", "start", name)
        deadline = time.monotonic() + START_LIMIT_S
        while not socket.exists():
            state = self.run("systemctl", "show", "--property", "ActiveState", "--value", name).strip()
            if state == "failed" or time.monotonic() > deadline:
                journal = self.run(
                    "journalctl", "--unit", name, "--lines", "15", "--no-pager", "--output", "cat", may_fail=True
                )
                self.module.fail_json(msg=f"[host.agent_not_running] the agent is {state}", stderr=journal)
            time.sleep(POLL_S)

    def stop_service(self) -> None:
        name = self.given["service"]["name"]
        if self.run("systemctl", "list-unit-files", "--no-legend", name, may_fail=True).strip():
            self.changes.append(name)
            self.run("systemctl", "disable", "--quiet", "--now", name)


def content_of(host: Installation, file: dict) -> bytes:
    """As it was sent; the play fails when that is not what the controller made."""
    encoded = file["content_base64"]
    content = file["content"].encode() if encoded is None else base64.b64decode(encoded)
    if file["sha256"] not in {None, hashlib.sha256(content).hexdigest()}:
        host.module.fail_json(
            msg=f"[host.agent_damaged] {file['path']} did not reach the host as the controller made it"
        )
    return content


def make_present(host: Installation) -> None:
    given = host.given
    if given["site"]:
        host.claim()
    files = [(each, content_of(host, each)) for each in given["files"]]  # before anything is changed
    if given["account"]:
        host.keep_account()
    for each in given["directories"]:
        host.keep_directory(Path(each["path"]), each["mode"])
    for each, content in files:
        host.keep_file(Path(each["path"]), each["mode"], content)
    if given["service"]:
        host.keep_service()


def mounted_below(paths: list[str]) -> list[str]:
    """Mount points at or below these, which may be written in any way that leads there."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    points = [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4]) for line in lines]
    directories = {Path(os.path.realpath(path)) for path in paths}
    return [point for point in points if not directories.isdisjoint((Path(point), *Path(point).parents))]


def make_absent(host: Installation) -> None:
    given = host.given
    if given["service"]:
        host.stop_service()
    for path in given["absent"]:
        host.remove(Path(path))
    if given["service"]:
        host.run("systemctl", "daemon-reload")
    if given["account"]:
        host.remove_account()


def main() -> None:
    module = AnsibleModule(argument_spec=OPTIONS)
    host = Installation(module)
    host.check_unmounted(host.given["absent"])
    (make_present if module.params["state"] == "present" else make_absent)(host)
    module.exit_json(changed=bool(host.changes), changes=host.changes)


if __name__ == "__main__":
    main()
