# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import LabError
from lab.guest.build import pci_names
from lab.guest.disk import START, partition_table
from lab.image.base import package_names
from lab.image.cpio import Archive
from lab.image.fingerprint import fingerprint, inputs
from lab.image.mirror import debian_archive, find_mirror, mirror_uris
from lab.image.modules import load_order

DEPENDENCIES = """\
kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/fs/mbcache.ko.xz kernel/lib/crc16.ko.xz
kernel/fs/jbd2/jbd2.ko.xz: kernel/lib/crc16.ko.xz
kernel/fs/mbcache.ko.xz:
kernel/lib/crc16.ko.xz:
kernel/drivers/net/virtio-net.ko.xz:
"""


def test_a_module_comes_after_all_that_it_needs() -> None:
    order = [Path(path).name for path in load_order(DEPENDENCIES, "", ["ext4"])]
    assert order[-1] == "ext4.ko.xz"
    assert order.index("crc16.ko.xz") < order.index("jbd2.ko.xz")
    assert len(order) == len(set(order)) == 4


def test_dashes_and_underscores_name_the_same_module_and_builtin_ones_are_left_out() -> None:
    assert load_order(DEPENDENCIES, "kernel/drivers/virtio/virtio_pci.ko\n", ["virtio_net", "virtio-pci"]) == [
        "kernel/drivers/net/virtio-net.ko.xz"
    ]


def test_a_module_that_the_kernel_lacks_is_an_error() -> None:
    with pytest.raises(LabError, match="the kernel has no module zfs"):
        load_order(DEPENDENCIES, "", ["zfs"])


NAMES = st.text("abcdefgh.-", min_size=1, max_size=8).filter(lambda name: name.strip(".") != "")


@given(st.dictionaries(NAMES, st.binary(max_size=64), max_size=8))
def test_the_system_cpio_reads_what_we_write(files: dict[str, bytes]) -> None:
    archive = Archive()
    for name, content in files.items():
        archive.file(f"top/{name}", content)
    packed = archive.pack()
    assert len(packed) % 512 == 0
    if shutil.which("cpio") is None:
        return
    listed = subprocess.run(["cpio", "-it", "--quiet"], input=packed, capture_output=True, check=True)
    wanted = {f"top/{name}" for name in files} | ({"top"} if files else set())
    assert set(listed.stdout.decode().split()) == wanted


def test_equal_files_give_equal_archives_in_any_order() -> None:
    one, two = Archive(), Archive()
    one.file("a/b", "x")
    one.file("c", "y")
    two.file("c", "y")
    two.file("a/b", "x")
    assert one.pack() == two.pack()


def test_directories_that_are_links_on_a_host_go_to_their_real_place(tmp_path: Path) -> None:
    (tmp_path / "lib/modules").mkdir(parents=True)
    (tmp_path / "lib/modules/a.ko").write_text("x")
    archive = Archive()
    archive.tree(tmp_path, "overlay")
    assert b"overlay/usr/lib/modules/a.ko\0" in archive.pack()


SOURCES = [
    ("Types: deb\nURIs: http://one.example/debian\nSuites: bookworm\n", "http://one.example/debian"),
    ("deb [signed-by=/k arch=amd64] https://two.example/debian/ trixie main\n", "https://two.example/debian/"),
    ("# deb http://off.example/debian x main\ndeb http://on.example/debian x main\n", "http://on.example/debian"),
    ("URIs: http://s.example/debian-security\nURIs: http://s.example/debian\n", "http://s.example/debian"),
    ("deb http://vendor.example/apt stable main\n", None),
]


@pytest.mark.parametrize(("text", "mirror"), SOURCES)
def test_the_mirror_is_the_debian_archive_of_apt(text: str, mirror: str | None) -> None:
    assert debian_archive(mirror_uris(text)) == mirror


def test_a_given_mirror_wins_and_none_at_all_is_refused(tmp_path: Path) -> None:
    assert find_mirror({"LAB_MIRROR": "http://mine.example"}, tmp_path) == "http://mine.example"
    with pytest.raises(LabError, match="apt on this machine names no Debian archive"):
        find_mirror({}, tmp_path)


def test_any_change_of_an_input_changes_the_fingerprint_and_build_leftovers_do_not(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("one")
    first = fingerprint(inputs(tmp_path))
    (tmp_path / "a.o").write_text("built")
    assert fingerprint(inputs(tmp_path)) == first
    source.chmod(0o755)
    executable = fingerprint(inputs(tmp_path))
    source.write_text("two")
    assert len({first, executable, fingerprint(inputs(tmp_path))}) == 3


def test_package_lists_may_have_comments() -> None:
    assert package_names("# all\ngcc\n\nmake # to build\n") == ["gcc", "make"]


def test_a_guest_knows_the_names_of_what_a_vm_can_hold() -> None:
    table = "# c\n10de  NVIDIA\n\t1eb8  T4\n\t\t10de 1  sub\n9999  Other\n\t0001  x\nC 03  Display\n\t02  3D\n"
    assert pci_names(table, ["10de"]) == "10de  NVIDIA\n\t1eb8  T4\n\t\t10de 1  sub\nC 03  Display\n\t02  3D\n"


def test_the_boot_record_has_one_active_partition_that_fits() -> None:
    table = partition_table(40960)
    assert len(table) == 66
    assert table[0] == 0x80
    assert int.from_bytes(table[8:12], "little") == START
    assert int.from_bytes(table[12:16], "little") == 40960
    assert table[-2:] == b"\x55\xaa"


def test_a_second_partition_lies_right_behind_the_first_and_is_linuxs() -> None:
    second = partition_table(40960, behind=8192)[16:32]
    assert (second[0], second[4]) == (0, 0x83)
    assert int.from_bytes(second[8:12], "little") == START + 40960
    assert int.from_bytes(second[12:16], "little") == 8192
