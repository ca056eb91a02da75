# SPDX-License-Identifier: Apache-2.0
"""Driver files with headers as the real ones have them and nothing in them, and a signer in minisign's format."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

from lab.driver.signer import Signer

__all__ = ["Signer"]


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
    packers: dict[str, Callable[[bytes], bytes]] = {"xz": lzma.compress, "gz": gzip.compress, "zst": bytes}
    control = packers[packing](packed.getvalue())
    return b"!<arch>\n" + _ar("debian-binary", b"2.0\n") + _ar(f"control.tar.{packing}", control) + _ar("data.tar", b"")


def _ar(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}".encode() + b"`\n"
    return head + content + b"\n" * (len(content) % 2)


def rpm_file(name: str = "NVIDIA-vGPU-rhel", version: str = "580.65.05", architecture: str = "x86_64") -> bytes:
    lead = b"\xed\xab\xee\xdb".ljust(96, b"\0")
    signature = _rpm_header({62: "sig"})
    padding = b"\0" * (-(len(lead) + len(signature)) % 8)
    return lead + signature + padding + _rpm_header({1000: name, 1001: version, 1022: architecture}) + b"payload"


def _rpm_header(tags: dict[int, str]) -> bytes:
    index, store = b"", b""
    for tag, value in tags.items():
        index += struct.pack(">IIII", tag, 6, len(store), 1)
        store += value.encode() + b"\0"
    return b"\x8e\xad\xe8\x01" + b"\0" * 4 + struct.pack(">II", len(tags), len(store)) + index + store


def signed(directory: Path, content: bytes, signer: Signer, name: str = "driver.run") -> Path:
    """``content`` as a file with its signature and the key beside it."""
    path = directory / name
    path.write_bytes(content)
    path.with_name(f"{name}.minisig").write_text(signer.sign(content))
    (directory / "minisign.pub").write_text(signer.key)
    return path
