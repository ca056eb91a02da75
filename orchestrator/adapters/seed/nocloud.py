# SPDX-License-Identifier: Apache-2.0
"""cloud-init's NoCloud data source (cloudinit.readthedocs.io) as an ISO 9660 image labelled cidata.

YAML is built as data and dumped, never written as text, so no value can become syntax.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

import pycdlib
import yaml

from orchestrator.ports.files import Seed

_LABEL = "cidata"
_METRIC: Final = 100
"""Of the first card's routes; each further card's are that much worse."""
_ISO_NAMES = {
    "meta-data": "/META.;1",
    "user-data": "/USER.;1",
    "vendor-data": "/VENDOR.;1",
    "network-config": "/NETWORK.;1",
}
_LET_IN: Final = """#!/bin/sh
# By vgpuctl: 'vgpuctl vm provision' logs in as vgpuctl, with a certificate that is made for each run.
# User data with "vendor_data: {{enabled: false}}" leaves this out.
set -eu
umask 077
getent passwd vgpuctl >/dev/null || useradd --create-home --shell /bin/sh --password '*' vgpuctl
home=$(getent passwd vgpuctl | cut -d: -f6)
install -d -m 0700 -o vgpuctl -g vgpuctl "$home/.ssh"
echo '{line}' > "$home/.ssh/authorized_keys"
chown vgpuctl:vgpuctl "$home/.ssh/authorized_keys"
echo 'vgpuctl ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/90-vgpuctl
chmod 0440 /etc/sudoers.d/90-vgpuctl
if command -v restorecon >/dev/null; then restorecon -R "$home/.ssh" /etc/sudoers.d/90-vgpuctl; fi
"""
"""A script and no cloud-config: what user data says of users would take the place of ours."""


class NoCloudSeeds:
    """Implements ports/files.SeedBuilder. ``authority``: by the id of a VM, the line of authorized_keys by which its
    guest lets our runs in."""

    def __init__(self, authority: Callable[[str], str]) -> None:
        self._authority = authority

    def build(self, wanted: Seed) -> bytes:
        """Four files; the user's own user data is passed on as it is. The keys are of the meta-data, where no user
        data takes their place: cloud-init gives its default user both."""
        keys = {"public-keys": list(wanted.ssh_keys)} if wanted.ssh_keys else {}
        files = {
            "meta-data": _dump({"instance-id": wanted.vm, "local-hostname": wanted.hostname, **keys}),
            "user-data": "#cloud-config\n{}\n" if wanted.user_data is None else wanted.user_data,
            "vendor-data": _LET_IN.format(line=self._authority(wanted.vm)),
            "network-config": _dump(_network(wanted)),
        }
        return _iso(files)


def _network(wanted: Seed) -> dict[str, object]:
    """DHCP on each card. The default route goes by the first card that has one.

    Cards are matched by their addresses: netplan alone knows patterns of names. Without ``set-name``, cloud-init looks
    up how the guest calls the card, renames nothing, and boots on where a card is missing. The keys are the names that
    cloud-init before 20.1 takes instead."""
    ethernets = {f"eth{number}": _dhcp(mac, number) for number, mac in enumerate(wanted.cards)}
    for card in ethernets.values():
        if card["match"]["macaddress"] in wanted.cards_of_ipv6:
            card["dhcp6"] = True
    if wanted.function is not None:
        ethernets["rdma0"] = {**_dhcp(wanted.function, len(wanted.cards)), "optional": True}
    return {"version": 2, "ethernets": ethernets}


def _dhcp(mac: str, number: int) -> dict[str, Any]:
    return {
        "match": {"macaddress": mac},
        "dhcp4": True,
        "dhcp4-overrides": {"route-metric": _METRIC * (number + 1)},
    }


def _dump(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=False, allow_unicode=False, width=100_000)
    return text


def _iso(files: dict[str, str]) -> bytes:
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=_LABEL)
    for name, text in files.items():
        content = text.encode()
        iso.add_fp(io.BytesIO(content), len(content), _ISO_NAMES[name], rr_name=name, joliet_path=f"/{name}")
    target = io.BytesIO()
    iso.write_fp(target)
    iso.close()
    return target.getvalue()
