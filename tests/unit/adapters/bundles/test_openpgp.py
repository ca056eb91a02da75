# SPDX-License-Identifier: Apache-2.0
"""Drivers signed by OpenPGP: beside the file, and inside of debs and rpms."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.adapters.bundles.library import BundleLibrary
from orchestrator.adapters.files.opening import Readable
from orchestrator.core.drivers.bundle import DriverBundle, NewBundle
from orchestrator.core.errors import InvalidInput
from tests.fakes.driver_files import PgpSigner, deb_file, rpm_file, run_file

SIGNER, THIEF = PgpSigner(), PgpSigner("Somebody <else@example.org>")


@pytest.fixture
def library(tmp_path: Path) -> BundleLibrary:
    (tmp_path / "kept").mkdir()
    return BundleLibrary(tmp_path / "kept", Readable(never_below=tmp_path / "kept"))


def _take(library: BundleLibrary, path: Path, content: bytes, signature: str | None, key: str) -> DriverBundle:
    path.write_bytes(content)
    with library.take(NewBundle(source=str(path), signature=signature, key=key), 7.0) as taken:
        taken.keep()
    return taken.described


def _refused(library: BundleLibrary, path: Path, content: bytes, signature: str | None, key: str = SIGNER.key) -> str:
    with pytest.raises(InvalidInput) as caught:
        _take(library, path, content, signature, key)
    assert list((path.parent / "kept").iterdir()) == []
    assert "\n" not in caught.value.message
    return caught.value.code


@pytest.mark.parametrize("content", [run_file(), deb_file(), rpm_file()])
def test_a_driver_is_kept_by_the_signature_beside_it(library: BundleLibrary, tmp_path: Path, content: bytes) -> None:
    bundle = _take(library, tmp_path / "f", content, SIGNER.sign(content), SIGNER.key)
    assert bundle.comment == "OpenPGP, Site <ops@example.org>"
    assert len(bundle.key_id) == 16
    assert (tmp_path / "kept" / bundle.sha256).read_bytes() == content


@pytest.mark.parametrize("content", [SIGNER.sign_deb(deb_file()), SIGNER.rpm_file()])
def test_a_package_is_kept_by_the_signature_inside_of_it(
    library: BundleLibrary, tmp_path: Path, content: bytes
) -> None:
    bundle = _take(library, tmp_path / "f", content, None, SIGNER.key)
    assert (bundle.content.kind, bundle.content.version) == ("vgpu_host", "580.65.05")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [bundle.sha256]


@pytest.mark.fault("F120")
def test_a_changed_file_or_another_key_is_refused(library: BundleLibrary, tmp_path: Path) -> None:
    content, path = run_file(), tmp_path / "f"
    good = SIGNER.sign(content)
    assert _refused(library, path, content + b"x", good) == "bundle.signature_wrong"
    assert _refused(library, path, content, good, THIEF.key) == "bundle.signature_wrong"
    assert _refused(library, path, content, THIEF.sign(content)) == "bundle.signature_wrong"


_RPM = SIGNER.rpm_file()
_DEB = SIGNER.sign_deb(deb_file())


@pytest.mark.fault("F120")
@pytest.mark.parametrize(("content", "code"), [
    (_RPM + b"x", "bundle.signature_wrong"),
    (_RPM.replace(b"580.65.05", b"580.95.05"), "bundle.signature_wrong"),
    (THIEF.rpm_file(), "bundle.signature_wrong"),
    (rpm_file(), "bundle.not_signed"),
    (_DEB.replace(b"2.0\n", b"2.1\n"), "bundle.signature_wrong"),
    (THIEF.sign_deb(deb_file()), "bundle.signature_wrong"),
    (THIEF.sign_deb(_DEB), "bundle.not_signed"),
    (deb_file(), "bundle.not_signed"),
    (_DEB[:-40], "bundle.signature_invalid"),
    (run_file(), "bundle.not_signed"),
    (b"", "bundle.not_signed"),
    (_RPM[:100], "bundle.unknown_content"),
])  # fmt: skip
def test_a_package_that_is_not_as_it_was_signed_is_refused(
    library: BundleLibrary, tmp_path: Path, content: bytes, code: str
) -> None:
    assert _refused(library, tmp_path / "f", content, None) == code


@pytest.mark.parametrize(
    "text", ["x", "-----BEGIN PGP SIGNATURE-----\n", "-----BEGIN PGP SIGNATURE-----\n\nAAAA\n=x\n"]
)
def test_what_is_no_signature_is_said(library: BundleLibrary, tmp_path: Path, text: str) -> None:
    assert _refused(library, tmp_path / "f", run_file(), text) == "bundle.signature_invalid"


@pytest.mark.parametrize("key", [
    "-----BEGIN PGP PUBLIC KEY BLOCK-----\n", SIGNER.key[:400],
    "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n-----END PGP PUBLIC KEY BLOCK-----\n",
])  # fmt: skip
def test_what_is_no_key_is_said(library: BundleLibrary, tmp_path: Path, key: str) -> None:
    assert _refused(library, tmp_path / "f", run_file(), SIGNER.sign(run_file()), key) == "bundle.key_invalid"


WEAK_KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mI0EawiC8QEEAOHWOknO7E+ADVrfHaAz0rr5vdPh0k+9Dtmjb6TIMrXEq5wINsK0
zy2pZEeB/3hxsmAun50FIs21Redtt7anCNsPQEXRhn4OsZDtP8mScFOhajcTdoY1
pQIxgqBixzX4DkN5JoxFcO9sSGA3T749KQpPz3Dw3eK0lyOT6hLgSKR1ABEBAAG0
GFdlYWsgPHdlYWtAZXhhbXBsZS50ZXN0PojOBBMBCgA4FiEEqi6IO0zrHlBJ0Gjs
Qp59Gs/9kIsFAmsIgvECGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQQp59
Gs/9kIv+hQQApPCngORgDBu15ufkCIs41g5f+mRBdfy2VQN9gfo5LR60ZcPeBp3T
51M1zxa++X2EyqGw78GA5eqc5aJh7Eec3/vKNYXZfuhJ0HeTBo2x1Nj/BvIWVlzW
oX/CYERq1sczUoCcy/db25NH9K1nnmQBA9rK9Pd1qweTtJqkJaIN5xM=
=IjVD
-----END PGP PUBLIC KEY BLOCK-----
"""
"""RSA with 1024 bits, which no policy believes."""
WEAK_SIGNATURE = """\
-----BEGIN PGP SIGNATURE-----

iLMEAAEIAB0WIQSqLog7TOseUEnQaOxCnn0az/2QiwUCawiC8QAKCRBCnn0az/2Q
i5mABADfOgQSYgRVydhrlOEh0+p0Qw4E4KU5k1fo0xvYywObE/lEOc+bDN7XEOhk
8XBxLTE2ad86tSVS4kXjh6r2v7amtL4NHM5kyvUltqwd9B+FdKVOj190jt9sVR8m
Vj4y8MX0g2OypWLMaiWt4QtfXhycTVGu2MfkCLONGLi5yOcM5A==
=g91r
-----END PGP SIGNATURE-----
"""
"""Over ``a file``."""


def test_a_key_that_is_too_weak_is_refused_in_one_line(library: BundleLibrary, tmp_path: Path) -> None:
    assert _refused(library, tmp_path / "f", b"a file", WEAK_SIGNATURE, WEAK_KEY) == "bundle.signature_wrong"
