# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pycdlib
import pytest
import yaml

from orchestrator.adapters.seed.nocloud import NoCloudSeeds
from orchestrator.ports.files import Seed

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLE me: - {x} #y"
MAC = "52:54:00:aa:bb:01"
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
    assert iso.joliet_vd is not None
    assert iso.joliet_vd.volume_identifier.decode("utf-16_be").strip() == "cidata", "which Windows goes by"
    iso.close()
    return found


def built(user_data: str | None = None, keys: tuple[str, ...] = (KEY,)) -> dict[str, str]:
    return files_of(SEEDS.build(Seed(vm="id-1", hostname="train", ssh_keys=keys, user_data=user_data, cards=(MAC,))))


def test_a_guest_learns_its_name_its_keys_and_to_use_dhcp() -> None:
    files = built()
    assert yaml.safe_load(files["meta-data"]) == {
        "instance-id": "id-1", "local-hostname": "train", "public-keys": [KEY],
    }  # fmt: skip
    assert files["user-data"].startswith("#cloud-config\n")
    assert yaml.safe_load(files["user-data"]) == {}
    (card,) = yaml.safe_load(files["network-config"])["ethernets"].values()
    assert (card["match"], card["dhcp4"]) == ({"macaddress": MAC}, True)


@pytest.mark.parametrize(
    "text",
    [
        "#ps1_sysnative\r\nWrite-Output ready\r\n",
        "#cloud-config\npackages: [vim]\nssh_authorized_keys: [theirs]\n",
        "#!/bin/sh\necho ü\n",
        "## template: jinja\n#cloud-config\nhostname: {{ v1.local_hostname }}\n",
        'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="b"\n\n--b\n\n#!/bin/sh\n--b--\n',
    ],
)
def test_the_users_own_data_is_unchanged_and_takes_no_keys_place(text: str) -> None:
    files = built(text)
    assert files["user-data"] == text
    assert yaml.safe_load(files["meta-data"])["public-keys"] == [KEY]


def test_a_name_that_looks_like_a_number_stays_text() -> None:
    files = files_of(SEEDS.build(Seed(vm="1e3", hostname="2026-11-20", cards=(MAC,))))
    assert yaml.safe_load(files["meta-data"]) == {"instance-id": "1e3", "local-hostname": "2026-11-20"}


def test_what_cloudbase_init_reads_is_shaped_as_it_reads_it() -> None:
    """Its service for NoCloud: name and instance as texts, keys as a list, each card by its address, none static."""
    files = built()
    meta, network = (yaml.safe_load(files[name]) for name in ("meta-data", "network-config"))
    assert {name: type(value) for name, value in meta.items()} == {
        "instance-id": str, "local-hostname": str, "public-keys": list,
    }  # fmt: skip
    assert network["version"] == 2
    assert [entry["match"]["macaddress"] for entry in network["ethernets"].values()] == [MAC]
    assert not {"addresses", "gateway4", "nameservers", "routes"} & set(network["ethernets"]["eth0"])
