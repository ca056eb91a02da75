# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import email
import io

import pycdlib
import pytest
import yaml

from orchestrator.adapters.seed.nocloud import NoCloudSeeds

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLE me: - {x} #y"
SEEDS = NoCloudSeeds(lambda vm: f"cert-authority ssh-ed25519 AAAA {vm}")


def files_of(iso_bytes: bytes) -> dict[str, str]:
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(iso_bytes))
    found = {}
    for name in ("meta-data", "user-data", "vendor-data", "network-config"):
        by_joliet, by_rock_ridge = io.BytesIO(), io.BytesIO()
        iso.get_file_from_iso_fp(by_joliet, joliet_path=f"/{name}")
        iso.get_file_from_iso_fp(by_rock_ridge, rr_path=f"/{name}")
        assert by_joliet.getvalue() == by_rock_ridge.getvalue()
        found[name] = by_joliet.getvalue().decode()
    assert iso.pvd.volume_identifier.strip() == b"cidata"
    iso.close()
    return found


def built(user_data: str | None = None, keys: tuple[str, ...] = (KEY,)) -> dict[str, str]:
    return files_of(SEEDS.build(vm_id="id-1", hostname="train", ssh_keys=keys, user_data=user_data))


def test_a_guest_learns_its_name_its_keys_and_to_use_dhcp() -> None:
    files = built()
    assert yaml.safe_load(files["meta-data"]) == {"instance-id": "id-1", "local-hostname": "train"}
    assert files["user-data"].startswith("#cloud-config\n")
    assert yaml.safe_load(files["user-data"]) == {"ssh_authorized_keys": [KEY]}
    assert yaml.safe_load(files["network-config"])["ethernets"]["all"]["dhcp4"] is True


@pytest.mark.parametrize(
    "text,kind",
    [
        ("#cloud-config\npackages: [vim]\n---\nother: 1\n", "text/cloud-config"),
        ("#!/bin/sh\necho ü\n", "text/x-shellscript"),
    ],
)
def test_the_users_own_data_is_a_part_of_its_own_and_unchanged(text: str, kind: str) -> None:
    message = email.message_from_string(built(text)["user-data"])
    ours, theirs = (part for part in message.walk() if not part.is_multipart())
    assert yaml.safe_load(str(ours.get_payload())) == {"ssh_authorized_keys": [KEY]}
    assert theirs.get_content_type() == kind
    assert str(theirs.get_payload()).rstrip("\n") == text.rstrip("\n")


def test_a_name_that_looks_like_a_number_stays_text() -> None:
    files = files_of(SEEDS.build(vm_id="1e3", hostname="2026-11-20", ssh_keys=(), user_data=None))
    assert yaml.safe_load(files["meta-data"]) == {"instance-id": "1e3", "local-hostname": "2026-11-20"}
