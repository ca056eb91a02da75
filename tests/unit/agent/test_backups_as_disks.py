# SPDX-License-Identifier: Apache-2.0
"""The disk of a new VM as what a backup holds, with the real restic and qemu-img."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.actions.host_actions import DefineDomain, DeleteVolume, StartDomain
from orchestrator.core.errors import Fatal, InvalidInput
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.test_backups import SIZE, Site, qemu, site

__all__ = ["site"]


def test_the_disk_of_a_new_vm_is_what_one_holds_on_an_image_of_which_nothing_shows(site: Site) -> None:
    site.write(b"\0" * 2**20, 0)
    bench, held = site.bench, site.shown()
    site.back_up(1)
    (image,) = bench.storage.paths.images.iterdir()
    assert held[: 2**16] != image.read_bytes()[: 2**16], "what is on the image lies beneath"
    vm, larger = "0a1d7dd8-9f0e-4e4f-9c1a-6d5c3f2b1a09", 2 * SIZE
    new = replace(site.fetch_of(1), vm=vm, volume=f"{vm}.qcow2", disk_bytes=larger, image=image.name)
    assert bench.do(new).changed
    assert not bench.do(new).changed
    assert bench.storage.image_beneath(vm, new.volume) == image.name
    out = site.volumes.parent / "new.raw"
    qemu("qemu-img", "convert", "-f", "qcow2", "-O", "raw", site.volumes / new.volume, out)
    assert out.read_bytes() == held + b"\0" * (larger - SIZE)
    bench.do(DeleteVolume(vm=vm, volume=new.volume))
    with pytest.raises(Fatal) as missing:
        bench.do(replace(new, image=f"{'0' * 64}.raw"))
    assert (missing.value.code, new.volume in site.names()) == ("image.missing", False)


def test_a_vm_may_have_no_network_card_and_none_behind_a_first_one_that_it_lacks(furnished: Bench) -> None:
    bench, alone = furnished, replace(domain_of(furnished.vm), network="")
    bench.do(DefineDomain(vm=bench.vm, domain=alone))
    assert bench.do(StartDomain(vm=bench.vm)).changed
    assert "<interface" not in bench.domains.on_own_domain(
        bench.vm, lambda domain: domain.XMLDesc(0), code="x", message="x", hint="x"
    )
    with pytest.raises(InvalidInput) as refused:
        bench.do(DefineDomain(vm=bench.vm, domain=replace(alone, more_networks=("default",))))
    assert refused.value.code == "vm.domain_invalid"
