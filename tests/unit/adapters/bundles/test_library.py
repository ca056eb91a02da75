# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.bundles.library import BundleLibrary
from orchestrator.adapters.files.opening import Readable
from orchestrator.core.drivers.bundle import DriverBundle, NewBundle
from orchestrator.core.errors import InvalidInput
from tests.fakes.driver_files import Signer, deb_file, rpm_file, run_file

SIGNER = Signer()


@pytest.fixture
def library(tmp_path: Path) -> BundleLibrary:
    (tmp_path / "kept").mkdir()
    return BundleLibrary(tmp_path / "kept", Readable(never_below=tmp_path / "kept"))


def _take(library: BundleLibrary, path: Path, content: bytes, **given: Any) -> DriverBundle:
    path.write_bytes(content)
    wanted = NewBundle(source=str(path), signature=SIGNER.sign(content), key=SIGNER.key)
    with library.take(replace(wanted, **given), 7.0) as taken:
        taken.keep()
    return taken.described


def _refused(library: BundleLibrary, path: Path, content: bytes, **given: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        _take(library, path, content, **given)
    assert list((path.parent / "kept").iterdir()) == []
    return caught.value.code


@pytest.mark.parametrize(
    ("content", "kind", "version", "architecture", "file_format", "branch"),
    [
        (run_file(), "vgpu_host", "580.65.05", "x86_64", "run", "R580"),
        (run_file("NVIDIA-Linux-x86_64-580.105.06-vgpu-kvm-aie"), "vgpu_host", "580.105.06", "x86_64", "run", "R580"),
        (run_file("NVIDIA-Linux-x86_64-580.65.06-grid"), "vgpu_guest", "580.65.06", "x86_64", "run", "R580"),
        (run_file("NVIDIA-Linux-aarch64-580.95.05"), "datacenter", "580.95.05", "aarch64", "run", "R580"),
        (deb_file(), "vgpu_host", "580.65.05", "x86_64", "deb", "R580"),
        (deb_file("nvidia-vgpu-ubuntu-550", "550.90.05"), "vgpu_host", "550.90.05", "x86_64", "deb", "R550"),
        (deb_file(packing="gz"), "vgpu_host", "580.65.05", "x86_64", "deb", "R580"),
        (deb_file(packing="zst"), "vgpu_host", "580.65.05", "x86_64", "deb", "R580"),
        (deb_file("nvidia-linux-grid-580", "580.65.06"), "vgpu_guest", "580.65.06", "x86_64", "deb", "R580"),
        (deb_file("nvidia-fabricmanager-580", "580.65.06-1"), "fabric_manager", "580.65.06", "x86_64", "deb", "R580"),
        (deb_file("nvidia-container-toolkit", "1.17.4-1", "arm64"), "container_toolkit", "1.17.4", "aarch64", "deb",
         None),
        (deb_file("datacenter-gpu-manager", "1:3.3.9"), "dcgm", "3.3.9", "x86_64", "deb", None),
        (rpm_file(), "vgpu_host", "580.65.05", "x86_64", "rpm", "R580"),
        (rpm_file("cuda-toolkit-13-0", "13.0.2", "noarch"), "cuda_toolkit", "13.0.2", "any", "rpm", None),
    ],
)  # fmt: skip
def test_a_signed_driver_is_kept_as_what_it_says_it_is(
    library: BundleLibrary, tmp_path: Path, content: bytes, kind: str, version: str, architecture: str,
    file_format: str, branch: str | None,
) -> None:  # fmt: skip
    bundle = _take(library, tmp_path / "file", content)
    about = bundle.content
    assert (about.kind, about.version, about.architecture, about.format) == (kind, version, architecture, file_format)
    assert bundle.branch == branch
    assert (bundle.comment, bundle.size_bytes) == ("OpenPGP, Site <ops@example.org>", len(content))
    assert re.fullmatch("[0-9A-F]{16}", bundle.key_id)
    assert bundle.sha256 == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "kept" / bundle.sha256).read_bytes() == content


@pytest.mark.fault("F120")
def test_a_changed_file_is_kept_by_nobody(library: BundleLibrary, tmp_path: Path) -> None:
    content = run_file()
    good = SIGNER.sign(content)
    assert _refused(library, tmp_path / "f", content + b"x", signature=good) == "bundle.signature_wrong"
    assert _refused(library, tmp_path / "f", content[:-1], signature=good) == "bundle.signature_wrong"
    assert _refused(library, tmp_path / "f", content, sha256="0" * 64) == "bundle.digest_differs"


@pytest.mark.fault("F120")
def test_a_signature_counts_only_by_the_key_that_was_given(library: BundleLibrary, tmp_path: Path) -> None:
    content, thief = run_file(), Signer("Site <ops@example.org>")
    assert _refused(library, tmp_path / "f", content, signature=thief.sign(content)) == "bundle.signature_wrong"
    assert _refused(library, tmp_path / "f", content, key=thief.key) == "bundle.signature_wrong"


@pytest.mark.parametrize(
    "text", ["", "x", "untrusted comment: a\nAAAA\ntrusted comment: b\nAAAA\n", "-----BEGIN PGP SIGNATURE-----\n", "\0"]
)
def test_what_is_no_signature_and_no_key_is_said(library: BundleLibrary, tmp_path: Path, text: str) -> None:
    assert _refused(library, tmp_path / "f", run_file(), signature=text) == "bundle.signature_invalid"
    assert _refused(library, tmp_path / "f", run_file(), key=text) == "bundle.key_invalid"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "bundle.unknown_content"),
        (b"#!/bin/sh\nrm -rf x\n", "bundle.unknown_content"),
        (b"\x7fELF", "bundle.unknown_content"),
        (run_file("pkg"), "bundle.unknown_content"),
        (run_file("NVIDIA-Linux-x86_64-595.91.07-grid-azure"), "bundle.unknown_content"),
        (run_file("NVIDIA-Linux-x86_64-550.0; rm"), "bundle.unknown_content"),
        (run_file("NVIDIA-Linux-ppc64le-550.54.15"), "bundle.unknown_content"),
        (run_file("NVIDIA-Linux-x86_64-5500.0.0.0"), "bundle.version_invalid"),
        (run_file("x") + run_file("y"), "bundle.unknown_content"),
        (deb_file("bash", "5.2"), "bundle.unknown_content"),
        (deb_file(version="550.0; rm"), "bundle.version_invalid"),
        (deb_file(version="seven"), "bundle.version_invalid"),
        (deb_file(architecture="riscv64"), "bundle.architecture"),
        (deb_file(packing="bz2"), "bundle.unknown_content"),
        (deb_file(packing="zst").replace(b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfe"), "bundle.unknown_content"),
        (deb_file()[:150], "bundle.unknown_content"),
        (b"!<arch>\n", "bundle.unknown_content"),
        (rpm_file(architecture="s390x"), "bundle.architecture"),
        (rpm_file()[:130], "bundle.unknown_content"),
        (b"\xed\xab\xee\xdb".ljust(96, b"\0") + b"\x8e\xad\xe8\x01" + b"\xff" * 12, "bundle.unknown_content"),
    ],
)
def test_a_signed_file_that_is_no_driver_is_refused(
    library: BundleLibrary, tmp_path: Path, content: bytes, code: str
) -> None:
    assert _refused(library, tmp_path / "f", content) == code


def test_only_a_regular_file_by_its_absolute_path_is_opened(library: BundleLibrary, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_bytes(run_file())
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for source in ("driver.run", f"{tmp_path}/pipe", f"{tmp_path}/link", f"{tmp_path}/../x", "/proc/self/environ",
                   "http://example.test/driver.run", str(tmp_path)):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            library.take(NewBundle(source=source, signature=SIGNER.sign(run_file()), key=SIGNER.key), 7.0).__enter__()
        assert caught.value.code == "bundle.source_refused"


def test_what_was_left_by_a_crash_is_swept_and_what_is_kept_stays(library: BundleLibrary, tmp_path: Path) -> None:
    bundle = _take(library, tmp_path / "f", run_file())
    (tmp_path / "kept/half.part").write_text("x")
    BundleLibrary(tmp_path / "kept", Readable(never_below=tmp_path / "kept"))
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [bundle.sha256]
    library.remove(bundle.sha256)
    library.remove(bundle.sha256)
    assert list((tmp_path / "kept").iterdir()) == []
