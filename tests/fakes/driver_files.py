# SPDX-License-Identifier: Apache-2.0
"""Driver files with headers as the real ones have them and nothing in them, and a signer by OpenPGP."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

from backports import zstd

from lab.driver.signer import Signer

__all__ = ["PgpSigner", "Signer"]


class PgpSigner(Signer):
    """One who signs packages inside."""

    def sign_deb(self, deb: bytes) -> bytes:
        """As debsigs does: over the contents of the members."""
        contents, at = b"", 8
        while at < len(deb):
            size = int(deb[at + 48 : at + 58])
            contents += deb[at + 60 : at + 60 + size]
            at += 60 + size + size % 2
        return deb + _ar("_gpgorigin", self.sign(contents).encode())

    def rpm_file(self, payload: bytes = b"payload", name: str = "NVIDIA-vGPU-rhel") -> bytes:
        """As rpmsign does: over the header, which has the payload's digest."""
        header = _rpm_header(_about(name) | {5092: hashlib.sha256(payload).hexdigest()})
        return _rpm({268: self.sign(header).encode()}, header, payload)


def run_file(target: str = "NVIDIA-Linux-x86_64-580.65.05-vgpu-kvm") -> bytes:
    """A makeself archive's script, then bytes that are no text."""
    script = f'#!/bin/sh\n# This script was generated using Makeself\nlabel="driver"\ntargetdir="{target}"\nexit 0\n'
    return script.encode() + bytes(range(256)) * 8


def deb_file(
    name: str = "nvidia-vgpu-ubuntu-580", version: str = "580.65.05", architecture: str = "amd64", packing: str = "xz"
) -> bytes:
    text = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nDescription: x\n y: z\n".encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("./control")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    packers: dict[str, Callable[[bytes], bytes]] = {
        "xz": lzma.compress,
        "gz": gzip.compress,
        "zst": zstd.compress,
        "bz2": bytes,
    }
    return deb_of(packers[packing](packed.getvalue()), f".{packing}")


def deb_of(control: bytes, packing: str = "") -> bytes:
    """Around any control archive."""
    member = _ar(f"control.tar{packing}", control)
    return b"!<arch>\n" + _ar("debian-binary", b"2.0\n") + member + _ar("data.tar", b"")


def _ar(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}".encode() + b"`\n"
    return head + content + b"\n" * (len(content) % 2)


def rpm_file(name: str = "NVIDIA-vGPU-rhel", version: str = "580.65.05", architecture: str = "x86_64") -> bytes:
    return _rpm({62: "sig"}, _rpm_header(_about(name, version, architecture)), b"payload")


def _about(name: str, version: str = "580.65.05", architecture: str = "x86_64") -> dict[int, str | bytes]:
    """As NVIDIA fills in headers: its vGPU manager has the system's version in VERSION and the driver's in RELEASE."""
    of_system = name.startswith("NVIDIA-vGPU-")
    versions = {1001: "9.4", 1002: version} if of_system else {1001: version, 1002: "1"}
    return {1000: name, **versions, 1022: architecture}


def _rpm(signatures: dict[int, str | bytes], header: bytes, payload: bytes) -> bytes:
    lead, signature = b"\xed\xab\xee\xdb".ljust(96, b"\0"), _rpm_header(signatures)
    padding = b"\0" * (-(len(lead) + len(signature)) % 8)
    return lead + signature + padding + header + payload


def _rpm_header(tags: dict[int, str | bytes]) -> bytes:
    index, store = b"", b""
    for tag, value in tags.items():
        kind, raw = (7, value) if isinstance(value, bytes) else (6, value.encode() + b"\0")
        index += struct.pack(">IIII", tag, kind, len(store), len(raw) if kind == 7 else 1)
        store += raw
    return b"\x8e\xad\xe8\x01" + b"\0" * 4 + struct.pack(">II", len(tags), len(store)) + index + store


def signed(directory: Path, content: bytes, signer: Signer, name: str = "driver.run") -> Path:
    """``content`` as a file with its signature and the key beside it."""
    path = directory / name
    path.write_bytes(content)
    path.with_name(f"{name}.asc").write_text(signer.sign(content))
    (directory / "site-key.asc").write_text(signer.key)
    return path
