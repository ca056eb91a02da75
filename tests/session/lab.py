# SPDX-License-Identifier: Apache-2.0
"""The session on two lab hosts: enrolled first, given back last, and what the guests print beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.lab.conftest import PAIR, LabHost, lab, listed
from tests.session.scenes import SCENES, Scene
from tests.session.site import Site, Size, site_over_tls

_IN_GUEST: Final = "for i in $(seq 60); do vgpuctl console {vm} --log | grep -a 10de: && break; sleep 2; done"
"""A guest has its address before it prints what is on its PCI bus."""
_SMALL: Final = Size(vcpus=1, memory_mib=192, disk_mib=256)
"""What a guest of the lab is content with; an emulated host has one processor."""


def lab_scenes(hosts: Sequence[LabHost]) -> tuple[Scene, ...]:
    """The day of the others between the first hour of two hosts and their last one."""
    operator, tenant, *rest = SCENES
    hers = replace(tenant, commands=(*tenant.commands, _IN_GUEST.format(vm="notebook")))
    return (_enrolling(hosts), operator, hers, _other_host(), *rest, _given_back(hosts))


def _enrolling(hosts: Sequence[LabHost]) -> Scene:
    added = (
        f"vgpuctl host add {one.name} --address {one.address} --port {one.port} --provisioning-key {one.name}.key "
        f"--host-key-fingerprint {one.host_key_fingerprint}"
        for one in hosts
    )
    title = "The operator has two machines with GPUs and NVIDIA's driver, an SSH key for each, and an image for VMs."
    return Scene("operator", title, (*added, "vgpuctl image add {image} guest.qcow2", "vgpuctl doctor"))


def _other_host() -> Scene:
    """The one that the team has no part of."""
    commands = (
        "vgpuctl capacity --profile 'NVIDIA L40S-12Q' {size.options}",
        "vgpuctl create-vm probe --profile 'NVIDIA L40S-12Q' --image {image} {size.options}",
        _IN_GUEST.format(vm="probe"),
        "vgpuctl gpu map",
        "vgpuctl delete-vm probe --yes",
    )
    return Scene("operator", "The operator tries the other host with a VM of her own.", commands)


def _given_back(hosts: Sequence[LabHost]) -> Scene:
    removed = (f"vgpuctl host remove {one.name} --yes" for one in hosts)
    return Scene("operator", "The machines are given back as they were.", (*removed, "vgpuctl host list"))


@contextmanager
def lab_site(directory: Path) -> Iterator[tuple[Site, tuple[Scene, ...]]]:
    """The hosts that run already, or brought up and ended; no server knows them yet."""
    before = set(listed())
    lab("up", *(word for name in PAIR for word in ("--scenario", f"lab/scenarios/{name}.yaml")))
    there = listed()
    hosts = [there["t4"], there["l40s"]]
    try:
        files = {f"{one.name}.key": Path(one.key_file) for one in hosts}
        with site_over_tls(directory) as site:
            on_lab = replace(
                site, host="t4", image="guest", size=_SMALL,
                files={**files, "guest.qcow2": Path(lab("guest-image").strip())},
            )  # fmt: skip
            yield on_lab, lab_scenes(hosts)
    finally:
        for one in hosts:
            if one.name not in before:
                lab("down", one.name)
