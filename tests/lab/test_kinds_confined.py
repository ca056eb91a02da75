# SPDX-License-Identifier: Apache-2.0
"""A VM of each way a GPU reaches one, on one host that has them all, each QEMU under a profile of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.conftest import LabHost
from tests.lab.enrolled import MDEV, MDEV_ON_VFS, VENDOR_VFIO, WHOLE, Enrolled, enrol

pytestmark = pytest.mark.lab

_BESIDE_EACH_OTHER = {"pf": MDEV.profile, "vf": MDEV_ON_VFS.profile, "vendor": VENDOR_VFIO.profile}
_ATTACHED_BY = {"pf": "mdev", "vf": "mdev", "vendor": "vendor_vfio", "whole": "passthrough"}


@pytest.fixture(scope="module")
def enrolled(mixed: LabHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enrolled]:
    with enrol(WHOLE, mixed, tmp_path_factory.mktemp("state")) as one:
        yield one


def test_vms_of_every_kind_run_beside_each_other_and_each_is_confined(enrolled: Enrolled) -> None:
    product = enrolled.product
    for name, profile in {**_BESIDE_EACH_OTHER, "whole": enrolled.profile}.items():
        product.ok(*enrolled.request_of(name, profile))
    shown = {name: product.json("show-vm", name) for name in _ATTACHED_BY}
    assert {name: one["devices"][0]["kind"] for name, one in shown.items()} == _ATTACHED_BY
    assert {name: enrolled.is_confined(name) for name in shown} == dict.fromkeys(shown, True)
    for name, one in shown.items():
        written = enrolled.shell(f"virsh dumpxml --inactive {one['id']}")
        assert written.count("<backingStore type='file'>") == 1, name
    seen = product.json("host", "show", enrolled.name)
    assert (seen["state"], seen["software"]["confinement"], seen["allow_unconfined"]) == ("ready", "apparmor", False)
    assert product.run("doctor", "-o", "json").json() == []
