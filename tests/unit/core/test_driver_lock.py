# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.driver_lock_file import read_lock
from orchestrator.core.drivers.bundle import BundleContent, DriverBundle, content_of_package
from orchestrator.core.drivers.host_drivers import choose_bundle
from orchestrator.core.drivers.lock import DriverLock, check_lock, lock_of
from orchestrator.core.errors import InvalidInput, NotFound

MATRIX = shipped().driver_matrix
DIGEST = "a" * 64
GUEST = DriverBundle(
    sha256=DIGEST, size_bytes=1, key_id="0", comment="", created_at=0.0,
    content=BundleContent(kind="vgpu_guest", package="g", version="580.65.06", architecture="x86_64", format="run"),
)  # fmt: skip
CUDNN = replace(GUEST, sha256="c" * 64, content=content_of_package("libcudnn9-cuda-13", "9.13.1-1", "amd64", "deb"))
FILE = Path("drivers.lock.yaml")
WHOLE = """\
schema_version: 1
site:
  host_driver: 580.65.05
  guest_driver: {version: 580.65.06, sha256: %s}
  cuda: 13.0 Update 2
  fabric_manager: 580.65.05
  container_toolkit: 1.17.4
groups:
  canary:
    labels: ring=canary
    host_driver: 580.82.02
    fabric_manager: 580.82.02
  spare:
    labels: "!used"
    guest_driver: 570.124.06
    cuda: 12.8 Update 1
""".replace("%s", DIGEST)


def _lock(text: str) -> DriverLock:
    return read_lock(FILE, text).to_core()


def _site(*lines: str) -> str:
    return "schema_version: 1\nsite:\n" + "".join(f"  {line}\n" for line in lines)


def test_the_first_group_that_picks_a_host_says_what_is_other_for_it() -> None:
    lock = _lock(WHOLE)
    check_lock(lock, MATRIX, [GUEST])
    plain = lock_of(lock, (("used", "yes"),))
    assert (plain.group, plain.version("host_driver"), plain.version("dcgm")) == ("site", "580.65.05", None)
    canary = lock_of(lock, (("ring", "canary"),))
    assert (canary.group, canary.version("host_driver"), canary.version("cuda")) == (
        "canary", "580.82.02", "13.0 Update 2",
    )  # fmt: skip
    assert lock_of(lock, ()).version("guest_driver") == "570.124.06"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_site("host_driver: 550.54.10", "guest_driver: 580.65.06"), "guest_driver 580.65.06 does not go with"),
        (
            _site("host_driver: 580.65.05", "guest_driver: 550.54.14"),
            "only its own branch, the one before and the long-term branch before, vGPU 16",
        ),
        (_site("host_driver: 595.71.03", "guest_driver: 535.309.01"), "only its own branch and the one before"),
        (_site("cuda: 12.8 Update 7"), "cuda '12.8 Update 7' is no toolkit of the tables; there are 12.8 Update 1"),
        (_site("guest_driver: 570.124.06", "cuda: 13.0 GA"), "cuda 13.0 GA needs a newer driver"),
        (_site("cuda: '13.0'"), "cuda '13.0' is no toolkit of the tables; there are 13.0 Update 2"),
        (_site("guest_driver: 535.309.01", "cuda: 13.0.2"), "cuda 13.0.2 needs a newer driver than guest_driver 535"),
        (_site("cuda: 13-0"), "cuda: '13-0' is no version of a toolkit: write it like 13.0.2 or 13.0 Update 2"),
        (_site("cuda: 12.8.1-1"), "cuda: '12.8.1-1' is no version of a toolkit"),
        (_site("host_driver: 580.65.05", "fabric_manager: 580.65.06"), "must be of the driver's own version"),
        (_site("fabric_manager: 580.65.06"), "there is no host_driver"),
        (_site("host_driver: 580.65"), ""),
        (_site("host_driver: 550.0; rm"), "line"),
        (_site("host_driver: 9"), "driver"),
        (_site(f"host_driver: {{version: 580.65.05, sha256: {'b' * 64}}}"), "no driver bundle has the digest"),
        (_site(f"host_driver: {{version: 580.65.06, sha256: {DIGEST}}}"), "bundle aaaaaaaaaaaa is vgpu_guest"),
        (_site(f"guest_driver: {{version: 580.65.07, sha256: {DIGEST}}}"), "is vgpu_guest 580.65.06"),
        ("schema_version: 1\nsite: {}\ngroups:\n  a: {labels: 'x=y z'}\n", "does not say which labels"),
        ("schema_version: 1\nsite: {}\ngroups:\n  site: {labels: x}\n", "no group is called site"),
        ("schema_version: 1\nsite: {}\ngroups:\n  Bad_Name: {labels: x}\n", "is not allowed"),
        ("schema_version: 1\nsite: {kernel: 6.12}\n", "kernel"),
        ("schema_version: 2\n", "schema_version"),
        ("- x\n", ""),
        ("site: [\n", "not YAML"),
        ("schema_version: 1\nsite: {cuda: 1}\nsite: {cuda: 2}\n", ""),
        ("a: &a [x]\nb: *a\n", ""),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_lock(_lock(text), MATRIX, [GUEST])
    assert caught.value.code.startswith(("lock.", "label."))
    assert said.replace("line", "drivers.lock.yaml:3") in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(("text", "said"), [
    (_site("cuda: 12.4"), "drivers.lock.yaml:3: site.cuda: YAML takes 12.4 for a number: put it in quotes"),
    (_site("host_driver: 2026-11-20"), "drivers.lock.yaml:3: site.host_driver: '2026-11-20' is no version"),
    (_site("host_driver: 550.0; rm"), "drivers.lock.yaml:3: site.host_driver: '550.0; rm' is no version"),
    (_site("dcgm: [3.3.9]"), "drivers.lock.yaml:3: site.dcgm: ['3.3.9'] is no version"),
    (
        _site("dcgm: {version: 3.3}"),
        "drivers.lock.yaml:3: site.dcgm.version: YAML takes 3.3 for a number: put it in quotes",
    ),
    (_site("dcgm: {version: 3.3.9, sha256: abc}"), "drivers.lock.yaml:3: site.dcgm.sha256: 'abc' is no SHA-256"),
    (_site("dcgm: {sha: abc}"), "drivers.lock.yaml:3: site.dcgm.version: is missing (and 1 more)"),
    ("", "drivers.lock.yaml: it is empty"), ("# nothing\n", "drivers.lock.yaml: it is empty"),
    ("- x\n", "drivers.lock.yaml:1: ['x'] is no lock: it begins with schema_version: 1"),
])  # fmt: skip
def test_a_slip_in_the_file_is_one_line_in_the_words_of_who_wrote_it(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        _lock(text)
    assert (caught.value.code, caught.value.message) == ("lock.invalid", said)


def test_a_group_that_can_never_count_is_refused() -> None:
    groups = (
        "groups:\n  a: {labels: 'x=y,!z', host_driver: 580.65.05}\n  b: {labels: '!z,x=y', host_driver: 580.82.02}\n"
    )
    with pytest.raises(InvalidInput, match="b: group a picks the same hosts and comes first") as caught:
        check_lock(_lock("schema_version: 1\n" + groups), MATRIX, [])
    assert caught.value.code == "lock.invalid"


def test_every_mistake_of_every_group_is_listed() -> None:
    text = WHOLE.replace("host_driver: 580.82.02", "host_driver: 535.54.06").replace("580.82.02", "580.82.03")
    with pytest.raises(InvalidInput) as caught:
        check_lock(_lock(text), MATRIX, [])
    groups = [reason.subjects[0] for reason in caught.value.reasons]
    assert set(groups) == {"site", "canary"}
    assert len(groups) == 4


@pytest.mark.parametrize("locked", [
    ("host_driver: 999.10.01",),
    ("host_driver: 999.10.01", "guest_driver: 999.10.02"),
    ("host_driver: 595.71.03", "cuda: '13.2'"),
    ("guest_driver: 999.10.02", "cuda: 99.1 Update 3"),
    ("guest_driver: 580.82.07", "cuda: 13.0.2"),
    ("host_driver: 580.178.05", "guest_driver: 535.309.01"),
])  # fmt: skip
def test_what_no_table_knows_may_be_locked(locked: tuple[str, ...]) -> None:
    check_lock(_lock(_site(*locked)), MATRIX, [])


def test_cudnn_is_locked_to_its_bundle_and_to_no_other() -> None:
    text = _site(f"cudnn: {{version: 9.13.1, sha256: {'c' * 64}}}")
    check_lock(_lock(text), MATRIX, [CUDNN])
    for wrong in ([], [replace(GUEST, sha256=CUDNN.sha256)]):
        with pytest.raises(InvalidInput) as caught:
            check_lock(_lock(text), MATRIX, wrong)
        assert (caught.value.code, "cudnn" in caught.value.message) == ("lock.invalid", True)


def test_a_bundle_for_machines_that_we_have_none_of_is_locked_by_nobody() -> None:
    foreign = replace(GUEST, content=replace(GUEST.content, architecture="aarch64"))
    with pytest.raises(InvalidInput, match="is for aarch64") as caught:
        check_lock(_lock(_site(f"guest_driver: {{version: 580.65.06, sha256: {DIGEST}}}")), MATRIX, [foreign])
    assert caught.value.code == "lock.invalid"


def test_a_bundle_for_machines_that_we_have_none_of_goes_onto_no_host() -> None:
    foreign = replace(GUEST, content=replace(GUEST.content, kind="vgpu_host", architecture="aarch64"))
    with pytest.raises(NotFound) as caught:
        choose_bundle([foreign], "host_driver", "580.65.06", os_name="Debian GNU/Linux 13")
    assert caught.value.code == "bundle.missing"
