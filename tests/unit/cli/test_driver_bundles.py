# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.driver_files import PgpSigner, Signer, deb_file, run_file, signed
from tests.fakes.typed import Cli, Outcome

SIGNER = Signer()


def _add(cli: Cli, path: Path, *more: str) -> Outcome:
    key = path.with_name("site-key.asc")
    return cli("driver", "bundle", "add", str(path), "--signature", f"{path}.asc", "--key", str(key), *more)


def _listed(cli: Cli) -> list[str]:
    return [one["version"] for one in json.loads(cli("driver", "bundle", "list", "-o", "json").out)]


def test_a_bundle_is_added_shown_and_removed(cli: Cli, tmp_path: Path) -> None:
    path = signed(tmp_path, run_file(), SIGNER)
    added = _add(cli, path)
    assert (added.code, "R580" in added.out, "vgpu_host" in added.out) == (0, True, True)
    assert _add(cli, path).code == 0
    assert _listed(cli) == ["580.65.05"]
    shown = json.loads(cli("driver", "bundle", "show", "580.65.05", "-o", "json").out)
    assert cli("driver", "bundle", "show", shown["sha256"][:8]).code == 0
    assert cli("driver", "bundle", "remove", shown["sha256"]).out == "vgpu_host 580.65.05 is removed\n"
    assert _listed(cli) == []
    assert cli("driver", "bundle", "list").out.startswith("no drivers yet")


def test_a_package_signed_by_openpgp_is_added_by_its_key_alone(cli: Cli, tmp_path: Path) -> None:
    signer, path, key = PgpSigner(), tmp_path / "driver.deb", tmp_path / "key.asc"
    path.write_bytes(signer.sign_deb(deb_file()))
    key.write_text(signer.key)
    added = cli("driver", "bundle", "add", str(path), "--key", str(key))
    assert (added.code, "OpenPGP, Site <ops@example.org>" in added.out) == (0, True), added.err
    beside = tmp_path / "driver.deb.asc"
    beside.write_text(signer.sign(path.read_bytes()))
    assert cli("driver", "bundle", "add", str(path), "--key", str(key), "--signature", str(beside)).code == 0
    key.write_text(PgpSigner().key)
    refused = cli("driver", "bundle", "add", str(path), "--key", str(key))
    assert (refused.code, "[bundle.signature_wrong]" in refused.err) == (2, True)
    assert cli("driver", "bundle", "remove", "580.65.05").code == 0


def test_two_files_of_one_version_are_told_apart_by_their_digests(cli: Cli, tmp_path: Path) -> None:
    for number in (1, 2):
        assert _add(cli, signed(tmp_path, run_file() + bytes([number]), SIGNER)).code == 0
    assert "[bundle.ambiguous]" in cli("driver", "bundle", "show", "580.65.05").err
    for one in json.loads(cli("driver", "bundle", "list", "-o", "json").out):
        assert cli("driver", "bundle", "remove", one["sha256"]).code == 0


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("NVIDIA-Linux-x86_64-999.65.05-vgpu-kvm", "bundle.unknown_branch"),
        ("NVIDIA-Linux-x86_64-999.65.05-grid", "bundle.unknown_branch"),
        ("something", "bundle.unknown_content"),
    ],
)
def test_a_driver_that_nobody_can_judge_is_not_taken(cli: Cli, tmp_path: Path, target: str, code: str) -> None:
    refused = _add(cli, signed(tmp_path, run_file(target), SIGNER))
    assert (refused.code, refused.out) == (2, "")
    assert f"[{code}]" in refused.err
    assert _listed(cli) == []


def test_bad_files_are_one_line_and_nothing_is_kept(cli: Cli, tmp_path: Path) -> None:
    path = signed(tmp_path, run_file(), SIGNER)
    assert "[file.digest_differs]" in _add(cli, path, "--sha256", "0" * 64).err
    assert "[file.digest_invalid]" in _add(cli, path, "--sha256", "xyz").err
    path.with_name("driver.run.asc").write_text("no signature")
    assert "[bundle.signature_invalid]" in _add(cli, path).err
    path.with_name("driver.run.asc").unlink()
    assert "[signature.unreadable]" in _add(cli, path).err
    assert "[bundle.unknown]" in cli("driver", "bundle", "show", "580").err
    assert _listed(cli) == []


def test_a_bundle_that_the_lock_names_stays(cli: Cli, tmp_path: Path) -> None:
    assert _add(cli, signed(tmp_path, run_file(), SIGNER)).code == 0
    digest = json.loads(cli("driver", "bundle", "list", "-o", "json").out)[0]["sha256"]
    lock = tmp_path / "drivers.lock.yaml"
    lock.write_text(f"schema_version: 1\nsite: {{host_driver: {{version: 580.65.05, sha256: {digest}}}}}\n")
    assert cli("driver", "lock", "apply", str(lock)).code == 0
    refused = cli("driver", "bundle", "remove", digest)
    assert (refused.code, "[bundle.locked]" in refused.err, _listed(cli)) == (5, True, ["580.65.05"])
    lock.write_text("schema_version: 1\nsite: {}\n")
    assert cli("driver", "lock", "apply", str(lock)).code == 0
    assert cli("driver", "bundle", "remove", digest).code == 0
