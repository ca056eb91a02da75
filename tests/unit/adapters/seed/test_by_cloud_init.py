# SPDX-License-Identifier: Apache-2.0
"""Our seeds as cloud-init itself reads them: its data source, its handlers of user data, its renderers of networks.

In one process for all tests: it takes a second to begin. It sees this machine read-only.
"""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.adapters.seed.nocloud import NoCloudSeeds
from orchestrator.core.vms.user_data import plain_user_data
from orchestrator.ports.files import Seed
from tests.unit.adapters.seed.test_nocloud import files_of

PROGRAM = Path(__file__).parent / "cloud_init.py"
MINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMINE me"
TEAM = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITEAM team"
AUTHORITY = "cert-authority ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICA"
CARDS = ("52:54:00:aa:bb:01", "52:54:00:aa:bb:02")
FUNCTION = "52:54:01:aa:bb:03"
NAMES = ("enp1s0", "enp2s0", "enp9s0f0v1")
CLOUD_CONFIG = f"#cloud-config\npackage_update: false\nssh_authorized_keys: [{TEAM}]\n"
USERS = f"#cloud-config\nusers: [default, {{name: ops, ssh_authorized_keys: [{TEAM}]}}]\n"
JINJA = (
    f"## template: jinja\n#cloud-config\nfinal_message: '{{{{ v1.local_hostname }}}}'\nssh_authorized_keys: [{TEAM}]\n"
)
SCRIPT = "#!/bin/sh\necho ready\n"


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


PARTS = f"""MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/cloud-config

{CLOUD_CONFIG}
--b
Content-Type: application/x-gzip
Content-Transfer-Encoding: base64

{packed(SCRIPT)}
--b--
"""
USER_DATA = {
    "nothing": None,
    "cloud-config": CLOUD_CONFIG,
    "users": USERS,
    "script": SCRIPT,
    "jinja": JINJA,
    "parts": PARTS,
    "packed": packed(CLOUD_CONFIG),
    "packed parts": packed(PARTS),
    "commented": CLOUD_CONFIG.replace("\n", " # of the team\r\n", 1),
    "ipv6": None,
    "without ours": "#cloud-config\nvendor_data: {enabled: false}\n",
}


@pytest.fixture(scope="module")
def guests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Case → what cloud-init makes of its seed."""
    directory = tmp_path_factory.mktemp("guests")
    seeds = NoCloudSeeds(lambda _vm: AUTHORITY)
    asked = {
        name: Seed(
            vm=f"vm-of-{name}", hostname="train", ssh_keys=(MINE,), cards=CARDS, function=FUNCTION,
            user_data=None if text is None else plain_user_data(text),
            cards_of_ipv6=frozenset(CARDS[:1] if name == "ipv6" else ()),
        )
        for name, text in USER_DATA.items()
    }  # fmt: skip
    writable = ["--bind", str(directory), str(directory)]
    words = ["bwrap", "--ro-bind", "/", "/", *writable, "--dev", "/dev", "--unshare-net", "--"]
    files = {name: files_of(seeds.build(seed)) for name, seed in asked.items()}
    done = subprocess.run(
        [*words, "/usr/bin/python3", "-I", str(PROGRAM)],
        input=json.dumps({"directory": str(directory), "seeds": files}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    missing = "No module named 'cloudinit'" in done.stderr
    assert not missing, "Debian's package cloud-init is missing: packages/ensure packages/dev.txt installs it"
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(("case", "keys"), [
    ("nothing", [MINE]), ("script", [MINE]), ("users", [MINE]), ("without ours", [MINE]),
    ("cloud-config", [MINE, TEAM]), ("jinja", [MINE, TEAM]), ("parts", [MINE, TEAM]), ("packed", [MINE, TEAM]),
    ("packed parts", [MINE, TEAM]), ("commented", [MINE, TEAM]),
])  # fmt: skip
def test_keys_of_the_vm_and_of_user_data_open_the_default_user(
    guests: dict[str, Any], case: str, keys: list[str]
) -> None:
    assert guests[case]["keys"]["debian"] == keys


def test_user_data_is_taken_for_what_it_is(guests: dict[str, Any]) -> None:
    assert {case: guest["config"].get("package_update") for case, guest in guests.items()} == {
        **dict.fromkeys(USER_DATA),
        **dict.fromkeys(("cloud-config", "parts", "packed", "packed parts", "commented"), False),
    }  # fmt: skip
    assert {case for case, guest in guests.items() if guest["scripts"] == [SCRIPT]} == {
        "script",
        "parts",
        "packed parts",
    }
    assert guests["jinja"]["config"]["final_message"] == "train"
    default, ops = guests["users"]["config"]["users"]
    assert (default, ops["name"], ops["ssh_authorized_keys"]) == ("default", "ops", [TEAM])


def test_every_guest_has_its_name_and_lets_runs_of_roles_in_unless_its_user_says_no(guests: dict[str, Any]) -> None:
    assert {guest["hostname"] for guest in guests.values()} == {"train"}
    let_in = {case for case, guest in guests.items() if any(AUTHORITY in text for text in guest["vendor_scripts"])}
    assert let_in == set(USER_DATA) - {"without ours"}


def test_netplan_matches_each_card_by_its_address_and_renames_none(guests: dict[str, Any]) -> None:
    ((_, text),) = guests["nothing"]["network"]["netplan"].items()
    cards = yaml.safe_load(text)["network"]["ethernets"].values()
    assert [card["match"]["macaddress"] for card in cards] == [*CARDS, FUNCTION]
    assert [card["dhcp4-overrides"]["route-metric"] for card in cards] == [100, 200, 300]
    assert [card.get("optional", False) for card in cards] == [False, False, True]
    assert all(card["dhcp4"] and "set-name" not in card for card in cards)


@pytest.mark.parametrize(("renderer", "lines"), [
    ("networkd", ["MACAddress={mac}", "Name={name}", "DHCP=ipv4"]),
    ("network-manager", ["mac-address={MAC}", "method=auto"]),
    ("sysconfig", ["DEVICE={name}", "HWADDR={mac}", "BOOTPROTO=dhcp", "ONBOOT=yes", "METRIC={metric}"]),
    ("eni", ["auto {name}", "iface {name} inet dhcp", "    metric {metric}"]),
])  # fmt: skip
def test_other_renderers_know_each_card_by_the_name_that_the_guest_gives_it(
    guests: dict[str, Any], renderer: str, lines: list[str]
) -> None:
    """Names of files and the beginning of ``METRIC`` differ between releases of cloud-init."""
    texts = list(guests["nothing"]["network"][renderer].values())
    for number, (name, mac) in enumerate(zip(NAMES, (*CARDS, FUNCTION), strict=True)):
        wanted = [line.format(name=name, mac=mac, MAC=mac.upper(), metric=100 * (number + 1)) for line in lines]
        assert [text for text in texts if all(f"{line}\n" in text for line in wanted)], (wanted, texts)
    assert not any("eth0" in text for text in texts)


@pytest.mark.parametrize(("renderer", "asks", "asks_not"), [
    ("netplan", "dhcp6: true", "dhcp6"),
    ("networkd", "DHCP=yes", "DHCP=yes"),
    ("network-manager", "[ipv6]\nmethod=auto", "[ipv6]\nmethod=auto"),
    ("sysconfig", "DHCPV6C=yes", "DHCPV6C"),
    ("eni", "iface enp1s0 inet6 dhcp", "iface enp2s0 inet6"),
])  # fmt: skip
def test_a_card_of_ipv6_asks_for_its_address_and_no_other_does(
    guests: dict[str, Any], renderer: str, asks: str, asks_not: str
) -> None:
    with_ipv6, without = ("\n".join(guests[case]["network"][renderer].values()) for case in ("ipv6", "nothing"))
    assert with_ipv6.count(asks) == 1, with_ipv6
    assert asks_not not in with_ipv6.replace(asks, "")
    assert asks_not not in without
