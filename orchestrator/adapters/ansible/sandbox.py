# SPDX-License-Identifier: Apache-2.0
"""What a run of Ansible can see and reach: the system's programs, our code, the files of the run, and its proxy.

No other file, no network, no other process. Made by bubblewrap (bwrap(1)), which needs no privilege where the kernel
gives user namespaces.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.core.errors import Fatal

_PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
    "/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies",
)  # fmt: skip
_TEMPORARY = "/tmp"  # noqa: S108 - of the sandbox alone
_PACKAGE = Path(__file__).resolve().parents[2]
HINT = "install bubblewrap (docs/howto/run-a-server.md); where it cannot run, ansible_sandbox: none in config.yaml"


def sandboxed(
    command: Sequence[str], scratch: Path, *, readable: Sequence[Path], writable: Sequence[Path]
) -> list[str]:
    """The command line that runs ``command`` so. ``scratch``: the run's own directory, its home.

    There is no /proc: nothing of a run asks for it, and containers do not let it be mounted.

    :raises Fatal: ``ansible.no_sandbox``: there is no bubblewrap
    """
    program = shutil.which("bwrap", path=_PROGRAM_PATH)
    if program is None:
        raise Fatal("ansible.no_sandbox", "there is no bubblewrap to keep runs of Ansible apart", hint=HINT)
    own = (Path(sys.base_prefix), Path(sys.prefix), _PACKAGE)
    return [
        program, "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent",
        "--new-session", "--cap-drop", "ALL", "--dev", "/dev", "--tmpfs", _TEMPORARY, "--setenv", "TMPDIR", _TEMPORARY,
        *(word for path in _SYSTEM for word in ("--ro-bind-try", path, path)),
        *(word for path in (*own, *readable) for word in ("--ro-bind", str(path), str(path))),
        *(word for path in (scratch, *writable) for word in ("--bind", str(path), str(path))),
        "--ro-bind", str(_account(scratch)), "/etc/passwd",
        "--", *command,
    ]  # fmt: skip


def _account(scratch: Path) -> Path:
    """ssh asks who it runs as."""
    path = scratch / "passwd"
    path.write_text(f"vgpuctl:x:{os.getuid()}:{os.getgid()}::{scratch}:/bin/sh\n", encoding="utf-8")
    return path
