# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.running import running_server
from tests.lab.product import Product, names

SMALL = ("--image", "guest", "--vcpus", "1", "--memory", "256MiB", "--disk", "1GiB")


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    state = tmp_path_factory.mktemp("plane")
    (state / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    with running_server(state, module="tests.contract.api.plane_server"):
        found = Product(state)
        _add_hosts(found)
        yield found


def _add_hosts(product: Product) -> None:
    for name in ("t4", "l40s"):
        product.ok(
            "host", "add", name, "--address", f"{name}.test", "--provisioning-key", str(product.state / "key"),
            "--host-key-fingerprint", f"SHA256:{name}.test",
        )  # fmt: skip


@pytest.mark.parametrize("profile", ["GRID T4-2Q", "NVIDIA L40S-12Q"])
def test_a_vm_lives_and_goes(product: Product, profile: str) -> None:
    wanted = ("create-vm", "train", "--profile", profile, *SMALL)
    planned = product.ok(*wanted, "--dry-run").out
    assert "MakeVgpu" in planned
    assert "<domain" in planned
    assert product.json("list-vms") == []

    created = product.ok(*wanted)
    assert "✓" in created.err
    vm = product.json("show-vm", "train")
    assert vm["state"] == "running"
    assert product.json(*wanted)["id"] == vm["id"]
    assert "vm.exists" in product.refused(5, *wanted, "--no-start", "--host", vm["host"]).err
    assert "default/train" in product.ok("gpu", "map").out
    assert names(product.json("list-vms", "--tenant", "default")) == ["train"]
    assert "tenant.unknown" in product.refused(4, "list-vms", "--tenant", "other").err

    product.ok("stop-vm", "train")
    assert product.json("show-vm", "train")["state"] == "stopped"
    product.ok("start-vm", "train")
    assert product.json("show-vm", "train")["state"] == "running"
    product.ok("delete-vm", "train")
    assert product.json("list-vms") == []
    assert product.json("operation", "list")[0]["state"] == "done"


def test_a_full_fleet_refuses_with_a_reason_for_each_gpu(product: Product) -> None:
    number = 0
    while True:
        outcome = product.run("create-vm", f"many-{number}", "--profile", "NVIDIA L40S-24Q", "--no-start", *SMALL)
        if outcome.code != 0:
            break
        number += 1
    assert number == 4
    assert outcome.code == 8
    assert "gpu.no_capacity" in outcome.err
    assert "0000:81:00.0" in outcome.err
    other = product.refused(8, "create-vm", "other", "--profile", "NVIDIA L40S-12Q", *SMALL)
    assert "size" in other.err
    explained = product.run("explain", "--profile", "NVIDIA L40S-24Q")
    assert explained.code == 8
    why = explained.out
    assert "does not fit" in why
    assert "l40s" in why
    (row,) = product.json("capacity", "--profile", "NVIDIA L40S-24Q")
    assert row["fits_now"] == 0
    assert "host.has_vms" in product.refused(5, "host", "remove", "l40s").err
    for done in range(number):
        product.ok("delete-vm", f"many-{done}")


def test_a_cordoned_host_takes_no_new_vm(product: Product) -> None:
    product.ok("host", "cordon", "t4")
    refused = product.refused(8, "create-vm", "late", "--profile", "GRID T4-2Q", *SMALL)
    assert "cordoned" in refused.err
    product.ok("host", "uncordon", "t4")
    assert product.json("host", "show", "t4")["cordoned"] is False


def test_hosts_gpus_and_profiles_are_shown_as_they_are(product: Product) -> None:
    assert names(product.json("host", "list")) == ["l40s", "t4"]
    frameworks = {gpu["host"]: gpu["framework"] for gpu in product.json("gpu", "list")}
    assert frameworks == {"t4": "mdev", "l40s": "vendor_vfio"}
    free = {row["name"]: row["free"] for row in product.json("profile", "list")}
    assert 0 < free["GRID T4-2Q"] <= 16  # so many pieces, where the host has memory for so many VMs
    assert product.json("profile", "show", "NVIDIA L40S-12Q")["hosts"] == ["l40s"]


def test_secrets_are_in_no_answer_and_no_log(product: Product, tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text("#cloud-config\npassword: s3cr3t-word\n")
    said = product.ok(
        "create-vm", "quiet", "--profile", "GRID T4-2Q", "--user-data", str(tmp_path / "user-data"), *SMALL
    )
    shown = "".join(product.ok(*words.split()).out for words in ("show-vm quiet -o json", "operation list -o json"))
    logs = "".join(path.read_text(errors="replace") for path in product.state.glob("*.log"))
    assert "s3cr3t-word" not in said.out + said.err + shown + logs
    product.ok("delete-vm", "quiet")


def test_hosts_are_given_back_and_added_again(product: Product) -> None:
    for name in ("t4", "l40s"):
        product.ok("host", "remove", name)
    assert product.json("host", "list") == []
    _add_hosts(product)
    assert names(product.json("host", "list")) == ["l40s", "t4"]
