# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.adapters.images.confined FILE COMMAND…``: becomes the command, which then can read FILE and
the system's programs and libraries, and nothing else: no other file, nothing to write, no network, bounded resources.
``FILE --into RESULT BYTES COMMAND…``: it may also write so much to the file RESULT, which is there.

Landlock (https://docs.kernel.org/userspace-api/landlock.html) binds it to its files, a system call filter keeps it from
sockets and from other processes. A kernel without one of them is made do with; a kernel that has it and refuses is not.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from typing import Final

INTO: Final = "--into"
_CPU_S_OF_WRITING: Final = 1800
FAILED: Final = 97
"""Exit code: the command was not begun."""
_LIMITS: Final = {
    resource.RLIMIT_AS: 2 * 1024**3,
    resource.RLIMIT_CPU: 300,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 64,
}
_PROGRAMS: Final = ("/usr", "/bin", "/lib", "/lib64")
_READABLE: Final = ("/etc/ld.so.cache",)
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_PATH_BENEATH: Final = 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION: Final = 1
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights over files each version of Landlock knows; later ones know as many as the last."""
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF_0000, 0x8000_0000, 0x0005_0001
_OF_X32: Final = 0x4000_0000
_FORBIDDEN: Final = {
    "x86_64": (
        0xC000_003E,
        (41, 42, 43, 44, 46, 49, 50, 53, 62, 101, 165, 248, 249, 250, 272, 288, 298, 304, 308, 310, 311, 321, 323, 425),
    ),
    "aarch64": (
        0xC000_00B7,
        (40, 97, 117, 129, 198, 199, 200, 201, 202, 203, 206, 211, 217, 218, 219, 241, 242, 265, 268, 270, 271, 280,
         282, 425),
    ),
}  # fmt: skip
"""By machine: the number of the architecture and of the calls that make and use sockets, look into other processes or
send them signals, mount, change name spaces, and reach the kernel in ways of their own (keys, bpf, io_uring, …)."""


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _bind_to_files(libc: ctypes.CDLL, file: str, into: str | None) -> None:
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    if version < 1:
        return
    rights = (1 << _RIGHTS[min(version, max(_RIGHTS))]) - 1
    network = 0b11 if version >= _NETWORK_SINCE else 0
    scopes = 0b11 if version >= _SCOPES_SINCE else 0
    # Older kernels take a longer structure as long as what they do not know is 0.
    wanted = struct.pack("=QQQ", rights, network, scopes)
    rules = _checked(libc.syscall(_CREATE_RULESET, wanted, ctypes.c_size_t(len(wanted)), 0))
    for path in _PROGRAMS:
        _allow(libc, rules, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in (*_READABLE, file):
        _allow(libc, rules, path, _READ_FILE)
    if into is not None:
        _allow(libc, rules, into, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & rights)
    _checked(libc.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    beneath = struct.pack("=Qi", rights, descriptor)
    _checked(libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, beneath, 0))
    os.close(descriptor)


def _filter_calls(libc: ctypes.CDLL) -> None:
    known = _FORBIDDEN.get(platform.machine())
    if known is None:
        return
    architecture, forbidden = known
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    program += [(_AT_LEAST, 0, 1, _OF_X32), (_RETURN, 0, 0, _REFUSE)]
    for number in forbidden:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    program += [(_RETURN, 0, 0, _ALLOW)]
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Filter(len(program), packed)), 0, 0) == 0:
        return
    if ctypes.get_errno() != 22:  # EINVAL: the kernel was built without it
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> int:
    """Does not come back when all goes well."""
    file, command, into, limits = sys.argv[1], sys.argv[2:], None, _LIMITS
    if command[0] == INTO:
        into, bytes_written, command = command[1], int(command[2]), command[3:]
        limits = {**_LIMITS, resource.RLIMIT_FSIZE: bytes_written, resource.RLIMIT_CPU: _CPU_S_OF_WRITING}
    try:
        for limit, value in limits.items():
            hard = resource.getrlimit(limit)[1]
            bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (bound, bound))
        libc = _libc()
        _checked(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _bind_to_files(libc, file, into)
        _filter_calls(libc)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot run {command[0]} confined: {error.strerror}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
