# SPDX-License-Identifier: Apache-2.0
"""What a host is told of the site's OVN, by its label and by settings."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest

from orchestrator.core.errors import Conflict
from orchestrator.core.ovn import NO_HOSTS, HostInOvn, HostsOfOvn, addresses_for_hosts, parse_mappings

SITE = HostsOfOvn(
    central=("192.0.2.41", "192.0.2.42", "192.0.2.43"), network=IPv4Network("192.0.2.0/24"),
    mappings={"physnet1": "br-ex"},
)  # fmt: skip


@pytest.mark.parametrize(("part", "mappings", "gateway"), [
    ("member", {}, False), ("outside", {"physnet1": "br-ex"}, False), ("gateway", {"physnet1": "br-ex"}, True),
])  # fmt: skip
def test_the_label_says_which_part_a_host_has(part: str, mappings: dict[str, str], gateway: bool) -> None:
    wanted = HostInOvn(central=SITE.central, network="192.0.2.0/24", mappings=mappings, gateway=gateway)
    assert SITE.host("gpu-1", (("ovn", part), ("rack", "3"))) == wanted


def test_a_host_without_the_label_is_left_alone_whatever_the_settings_say() -> None:
    assert SITE.host("gpu-1", (("rack", "3"),)) is None
    assert NO_HOSTS.host("gpu-1", ()) is None


@pytest.mark.parametrize(("site", "part", "code"), [
    (SITE, "yes", "host.ovn_label"), (SITE, "", "host.ovn_label"), (NO_HOSTS, "member", "ovn.hosts_elsewhere"),
    (HostsOfOvn(central=SITE.central), "member", "ovn.hosts_elsewhere"),
])  # fmt: skip
def test_a_label_that_cannot_be_followed_is_refused_with_a_command_that_helps(
    site: HostsOfOvn, part: str, code: str
) -> None:
    with pytest.raises(Conflict) as caught:
        site.host("gpu-1", (("ovn", part),))
    assert caught.value.code == code
    assert "vgpuctl host set gpu-1 --" in str(caught.value.hint)


@pytest.mark.parametrize(("southbound", "addresses"), [
    (("ssl:192.0.2.41:6642", "ssl:192.0.2.42:6642"), ("192.0.2.41", "192.0.2.42")),
    (("ssl:[fd00::5]:6642",), ("fd00::5",)),
    (("ssl:192.0.2.41:6642", "tcp:192.0.2.42:6642"), ()),
    (("ssl:192.0.2.41:16642",), ()),
    (("unix:/run/ovn/ovnsb_db.sock",), ()),
])  # fmt: skip
def test_hosts_are_sent_only_where_the_central_role_answers_them(
    southbound: tuple[str, ...], addresses: tuple[str, ...]
) -> None:
    assert addresses_for_hosts(southbound) == addresses


def test_mappings_are_written_as_ovn_writes_them() -> None:
    assert parse_mappings("physnet1:br-ex, two:br-two") == {"physnet1": "br-ex", "two": "br-two"}
    for text in ("", "physnet1", "physnet1:br-ex,", "a:b:c", "physnet1:-br", "physnet1:a-bridge-too-long"):
        with pytest.raises(ValueError, match="NETWORK:BRIDGE"):
            parse_mappings(text)
