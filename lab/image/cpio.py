# SPDX-License-Identifier: Apache-2.0
"""Archives as the kernel unpacks them (cpio, "newc" format: Linux Documentation/driver-api/early-userspace)."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field
from pathlib import Path

_MERGED = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


@dataclass(frozen=True)
class _Entry:
    mode: int
    content: bytes = b""


@dataclass
class Archive:
    """Files by path, written sorted and without times, so that equal inputs give equal bytes."""

    _entries: dict[str, _Entry] = field(default_factory=dict)

    def directory(self, path: str, mode: int = 0o755) -> None:
        self._parents(path)
        self._entries[path] = _Entry(stat.S_IFDIR | mode)

    def file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        self._parents(path)
        data = content.encode() if isinstance(content, str) else content
        self._entries[path] = _Entry(stat.S_IFREG | mode, data)

    def link(self, path: str, target: str) -> None:
        self._parents(path)
        self._entries[path] = _Entry(stat.S_IFLNK | 0o777, target.encode())

    def tree(self, source: Path, below: str, without: tuple[str, ...] = ()) -> None:
        """Everything under ``source`` but paths that end so; top directories that a merged-/usr system links go to
        their real place."""
        for path in sorted(path for path in source.rglob("*") if not str(path).endswith(without)):
            relative = path.relative_to(source)
            top = _MERGED.get(relative.parts[0])
            name = str(Path(below, *((top, *relative.parts[1:]) if top else relative.parts)))
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                self.link(name, str(path.readlink()))
            elif stat.S_ISDIR(mode):
                if name not in self._entries:
                    self.directory(name, stat.S_IMODE(mode))
            else:
                self.file(name, path.read_bytes(), stat.S_IMODE(mode))

    def _parents(self, path: str) -> None:
        for parent in reversed(Path(path).parents[:-1]):
            self._entries.setdefault(str(parent), _Entry(stat.S_IFDIR | 0o755))

    def pack(self) -> bytes:
        """The archive, parents before children, padded to 512 bytes so that another may follow it."""
        out = bytearray()
        for number, path in enumerate(sorted(self._entries), start=1):
            out += _record(path, number, self._entries[path])
        out += _record("TRAILER!!!", 0, _Entry(0))
        return bytes(out + b"\0" * (-len(out) % 512))


def _record(path: str, inode: int, entry: _Entry) -> bytes:
    name = path.encode() + b"\0"
    fields = (inode, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(f"{value:08X}".encode() for value in fields) + name
    head += b"\0" * (-len(head) % 4)
    return head + entry.content + b"\0" * (-len(entry.content) % 4)
