# SPDX-License-Identifier: Apache-2.0
"""What a guest writes on its data volume is there for the next VM that has it; and a guest with two network cards."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.lab.enrolled import Enrolled

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

MIB = 1024**2
SIZE_MIB = 48
_EACH = (
    "for disk in /sys/block/vd*; do "
    'if [ "$(cat "$disk/serial")" = %s ]; then echo "${disk##*/} $(cat "$disk/size")"; fi; done'
)
FIND = _EACH % "data"
"""The volume's name is the disk's serial number, of which udev makes /dev/disk/by-id. Sizes are in 512 bytes."""
OWN_SIZE = "cat /sys/block/vda/size"
FAR = 40
"""MiB from its beginning."""
FILES = "ls /var/lib/vgpuctl-agent/data"


@pytest.fixture
def volume(enrolled: Enrolled) -> Iterator[str]:
    """Of which no host has a file yet."""
    enrolled.product.ok("volume", "create", "data", "--size", f"{SIZE_MIB}MiB")
    yield "data"
    enrolled.clear()
    enrolled.product.ok("volume", "delete", "data", "--yes")
    assert enrolled.shell(FILES).split() == []


def disk_of(enrolled: Enrolled, vm: str, size_mib: int = SIZE_MIB, volume: str = "data") -> str:
    """The device of the volume in a guest; it has the volume's size there."""
    name, sectors = enrolled.in_guest(vm, _EACH % volume).split()
    assert int(sectors) * 512 == size_mib * MIB
    return f"/dev/{name}"


def written(enrolled: Enrolled, vm: str, text: str) -> None:
    """Near the volume's end, and on the disk when it returns."""
    disk = disk_of(enrolled, vm)
    enrolled.in_guest(vm, f"echo {text} | dd of={disk} bs=1M seek={FAR} conv=sync,fsync 2>/dev/null")


def read(enrolled: Enrolled, vm: str, volume: str = "data") -> str:
    disk = disk_of(enrolled, vm, volume=volume)
    return enrolled.in_guest(vm, f"dd if={disk} bs=1M skip={FAR} count=1 2>/dev/null | tr -d '\\0'").strip()


def test_what_a_guest_writes_on_its_volume_the_next_vm_reads(enrolled: Enrolled, volume: str) -> None:
    product, key = enrolled.product, ("--ssh-key", enrolled.public_key)
    product.ok(*enrolled.request("first", "--volume", volume, *key))
    assert product.json("volume", "show", volume)["vm"] == "first"
    assert read(enrolled, "first") == ""
    written(enrolled, "first", "kept-by-first")

    (address,) = product.json("show-vm", "first")["addresses"]
    assert f"ip='{address}'" in enrolled.shell("virsh net-dumpxml default.default"), "dnsmasq gave what is reserved"
    product.ok("restart-vm", "first")
    assert read(enrolled, "first") == "kept-by-first"
    assert product.json("show-vm", "first")["addresses"] == [address]
    product.ok("stop-vm", "first")
    product.ok("volume", "detach", volume, "first")
    product.ok("delete-vm", "first", "--yes")
    assert len(enrolled.shell(FILES).split()) == 1

    product.ok(*enrolled.request("second", "--no-start", *key))
    product.ok("volume", "attach", volume, "second")
    product.ok("start-vm", "second")
    assert read(enrolled, "second") == "kept-by-first"
    product.refused(5, "volume", "delete", volume, "--yes")


def test_what_was_on_a_volume_comes_back_and_is_on_a_new_one(enrolled: Enrolled, volume: str) -> None:
    product, snapshot = enrolled.product, "while-it-runs"
    product.ok(*enrolled.request("first", "--volume", volume, "--ssh-key", enrolled.public_key))
    written(enrolled, "first", "before")
    product.ok("volume", "snapshot", "create", volume, snapshot)
    written(enrolled, "first", "after")
    product.ok("volume", "create", "twin", "--from-snapshot", f"{volume}/{snapshot}")
    product.ok("volume", "attach", "twin", "first")
    eventually(enrolled, "first", f"{_EACH % 'twin'} | wc -l", "1")
    assert (read(enrolled, "first"), read(enrolled, "first", "twin")) == ("after", "before")
    product.refused(5, "volume", "snapshot", "restore", volume, snapshot, "--yes")
    product.ok("stop-vm", "first")
    product.ok("volume", "snapshot", "restore", volume, snapshot, "--yes")
    product.ok("start-vm", "first")
    assert read(enrolled, "first") == "before"
    written(enrolled, "first", "again")
    assert read(enrolled, "first", "twin") == "before"
    product.ok("stop-vm", "first")
    for name in (volume, "twin"):
        product.ok("volume", "detach", name, "first")
    product.ok("volume", "snapshot", "create", volume, "free")
    product.ok("volume", "snapshot", "restore", volume, snapshot, "--yes")
    product.refused(5, "volume", "delete", volume, "--yes")
    for taken in (snapshot, "free"):
        product.ok("volume", "snapshot", "delete", volume, taken, "--yes")
    product.ok("volume", "delete", "twin", "--yes")
    product.ok("volume", "attach", volume, "first")
    product.ok("start-vm", "first")
    assert read(enrolled, "first") == "before"


def test_a_disk_and_a_volume_come_back_as_they_were_at_one_moment(enrolled: Enrolled, volume: str) -> None:
    """A guest writes one number after the other, to its volume first and then to its disk: never is the disk ahead."""
    product, own = enrolled.product, "/dev/vda"
    product.ok(*enrolled.request("first", "--volume", volume, "--ssh-key", enrolled.public_key))
    data, at = disk_of(enrolled, "first"), "bs=1M conv=sync,fsync 2>/dev/null"
    loop = f"while :; do i=$((i+1)); echo $i | dd of={data} seek={FAR} {at}; echo $i | dd of={own} seek=200 {at}; done"
    enrolled.in_guest("first", f"(i=0; {loop}) </dev/null >/dev/null 2>&1 & sleep 3")
    product.ok("vm", "snapshot", "create", "first", "both", "--volumes")
    assert product.json("volume", "snapshot", "list", volume)[0]["taken_with"] == "first/both"
    product.refused(5, "volume", "snapshot", "delete", volume, "both", "--yes")
    product.ok("stop-vm", "first", "--force")
    product.ok("vm", "snapshot", "restore", "first", "both", "--yes")
    product.ok("start-vm", "first")
    read_disk = f"dd if={own} bs=1M skip=200 count=1 2>/dev/null | tr -d '\\0'"
    on_volume, on_disk = int(read(enrolled, "first")), int(enrolled.in_guest("first", read_disk))
    assert on_volume - on_disk in {0, 1}, (on_volume, on_disk)
    product.ok("vm", "snapshot", "delete", "first", "both", "--yes")
    assert len(enrolled.shell(FILES).split()) == 1


def eventually(enrolled: Enrolled, vm: str, command: str, wanted: str) -> None:
    """The guest's kernel finds what was plugged in, some tenths of a second later."""
    deadline = time.monotonic() + 30
    while (answer := enrolled.in_guest(vm, command).strip()) != wanted:
        assert time.monotonic() < deadline, answer
        time.sleep(1)


def test_a_guest_that_runs_gets_a_volume_more_of_it_and_lets_go_of_it(enrolled: Enrolled, volume: str) -> None:
    product = enrolled.product
    product.ok(*enrolled.request("live", "--ssh-key", enrolled.public_key))
    for text in ("first time", "second time"):
        product.ok("volume", "attach", volume, "live")
        eventually(enrolled, "live", f"{FIND} | wc -l", "1")
        disk_of(enrolled, "live")
        written(enrolled, "live", text.replace(" ", "-"))
        product.ok("volume", "detach", volume, "live")
        eventually(enrolled, "live", f"{FIND} | wc -l", "0")
    product.ok("volume", "attach", volume, "live")
    assert read(enrolled, "live") == "second-time"

    product.refused(2, "volume", "resize", volume, "--size", "16MiB")
    product.ok("volume", "resize", volume, "--size", f"{2 * SIZE_MIB}MiB")
    eventually(enrolled, "live", f"{FIND} | cut -d' ' -f2", str(2 * SIZE_MIB * MIB // 512))
    assert _limits(enrolled, "live") == {"0"}
    product.ok("volume", "set", volume, "--max-iops", "500")
    assert _limits(enrolled, "live") == {"0", "500"}
    disk_mib = int(enrolled.in_guest("live", OWN_SIZE)) * 512 // MIB
    product.refused(2, "vm", "resize-disk", "live", "--size", f"{disk_mib - 1}MiB")
    product.ok("vm", "resize-disk", "live", "--size", f"{disk_mib + 16}MiB")
    eventually(enrolled, "live", OWN_SIZE, str((disk_mib + 16) * MIB // 512))
    product.ok("restart-vm", "live")
    assert enrolled.in_guest("live", OWN_SIZE).strip() == str((disk_mib + 16) * MIB // 512)
    disk_of(enrolled, "live", 2 * SIZE_MIB)
    assert _limits(enrolled, "live") == {"0", "500"}
    product.ok("volume", "set", volume, "--max-iops", "0")
    assert _limits(enrolled, "live") == {"0"}


def _limits(enrolled: Enrolled, vm: str) -> set[str]:
    """Requests in a second, of each of its disks, as QEMU has them; 0: no limit."""
    domain = enrolled.product.json("show-vm", vm)["id"]
    ask = f'virsh qemu-monitor-command {domain} --pretty \'{{"execute": "query-block"}}\''
    return set(re.findall(r'"iops": ([0-9]+)', enrolled.shell(ask)))


def test_a_guest_that_runs_gets_a_network_card_and_loses_it(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok("network", "create", "inner")
    product.ok(*enrolled.request("carded", "--ssh-key", enrolled.public_key))
    cards = "ls /sys/class/net | grep -c ^eth"
    eventually(enrolled, "carded", cards, "1")
    product.ok("network", "attach", "inner", "carded")
    eventually(enrolled, "carded", cards, "2")
    lease = "ip link set eth1 up; udhcpc -q -n -i eth1 -s /etc/udhcpc.script; ip -4 -o address"
    told = enrolled.in_guest("carded", lease)
    assert len([line for line in told.splitlines() if " eth" in line]) == 2, told
    product.ok("network", "detach", "inner", "carded")
    eventually(enrolled, "carded", cards, "1")
    product.ok("delete-vm", "carded", "--yes")
    product.ok("network", "delete", "inner")


@pytest.mark.soak
def test_a_guest_with_two_cards_gets_an_address_on_each(enrolled: Enrolled) -> None:
    product = enrolled.product
    product.ok("network", "create", "inner")
    cards = ("--network", "default", "--network", "inner")
    product.ok(*enrolled.request("both", *cards, "--ssh-key", enrolled.public_key))
    told = enrolled.in_guest(
        "both", "ip link set eth1 up; udhcpc -q -n -i eth1 -s /etc/udhcpc.script; ip -4 -o address"
    )
    addresses = {line.split()[3].partition("/")[0] for line in told.splitlines() if " eth" in line}
    assert len(addresses) == 2, told
    deadline = time.monotonic() + 300
    while (shown := set(product.json("show-vm", "both")["addresses"])) != addresses:
        assert time.monotonic() < deadline, shown
        time.sleep(3)
    product.ok("delete-vm", "both", "--yes")
    product.ok("network", "delete", "inner")


def test_two_guests_read_what_a_third_wrote_and_neither_writes(enrolled: Enrolled, volume: str) -> None:
    product, key = enrolled.product, ("--ssh-key", enrolled.public_key)
    product.ok(*enrolled.request("first", "--volume", volume, *key))
    written(enrolled, "first", "data-set")
    product.refused(5, *enrolled.request("second", "--volume", f"{volume}:ro", *key))
    product.ok("stop-vm", "first")
    product.ok("volume", "detach", volume, "first")
    product.ok("volume", "attach", volume, "first", "--read-only")
    product.ok("start-vm", "first")
    product.ok(*enrolled.request("second", "--volume", f"{volume}:ro", *key))
    assert product.json("show-vm", "second")["volumes"] == [f"{volume}:ro"]
    product.ok("restart-vm", "first")
    for vm in ("first", "second"):
        assert read(enrolled, vm) == "data-set", "also after the other one's QEMU ended"
        disk = disk_of(enrolled, vm)
        assert enrolled.in_guest(vm, f"cat /sys/block/{disk.rpartition('/')[2]}/ro").strip() == "1"
    product.refused(5, "volume", "resize", volume, "--size", f"{2 * SIZE_MIB}MiB")
    product.ok("delete-vm", "second", "--yes")
    assert product.json("volume", "show", volume)["read_by"] == ["first"]


def test_an_encrypted_volume_comes_back_with_its_vm_and_its_file_holds_no_plain_text(enrolled: Enrolled) -> None:
    product, text = enrolled.product, "kept-in-cipher"
    product.ok("volume", "create", "private", "--size", f"{SIZE_MIB}MiB", "--encrypted")
    product.ok(*enrolled.request("first", "--volume", "private", "--ssh-key", enrolled.public_key))
    disk = disk_of(enrolled, "first", volume="private")
    enrolled.in_guest("first", f"echo {text} | dd of={disk} bs=1M seek={FAR} conv=sync,fsync 2>/dev/null")
    product.ok("stop-vm", "first")
    (file,) = enrolled.shell(FILES).split()
    directory = FILES.removeprefix("ls ")
    assert enrolled.shell(f"head -c 4 {directory}/{file}") == "LUKS"
    assert enrolled.shell(f"grep -rlF {text} {directory} || true").strip() == ""
    assert len(enrolled.shell("virsh secret-list | tail -n +3").split()) == 0, "libvirt was left with a key"
    product.ok("start-vm", "first")
    assert read(enrolled, "first", "private") == text
    product.ok("stop-vm", "first")
    product.ok("volume", "detach", "private", "first")
    product.ok("volume", "delete", "private", "--yes")
    product.ok("delete-vm", "first", "--yes")


def test_what_a_guest_writes_on_its_encrypted_disk_is_in_no_file_and_is_back_after_a_growth(enrolled: Enrolled) -> None:
    product, text = enrolled.product, "kept-in-cipher-on-its-own-disk"
    product.ok(*enrolled.request("first", "--encrypted", "--ssh-key", enrolled.public_key))
    last = int(enrolled.in_guest("first", OWN_SIZE)) - 8
    enrolled.in_guest("first", f"echo {text} | dd of=/dev/vda bs=512 seek={last} conv=sync,fsync 2>/dev/null")
    started = enrolled.shell("tr '\\0' ' ' </proc/$(pgrep -of guest=default.first)/cmdline")
    assert "encrypt.format=luks" in started or '"encrypt"' in started
    assert "key-secret" in started
    product.refused(5, "vm", "snapshot", "create", "first", "before")
    product.ok("stop-vm", "first")
    (file,) = enrolled.shell("ls /var/lib/vgpuctl-agent/volumes").split()
    assert file.endswith(".luks.qcow2")
    assert enrolled.shell(f"grep -F {text} /var/lib/vgpuctl-agent/volumes/{file} || true").strip() == ""
    assert len(enrolled.shell("virsh secret-list | tail -n +3").split()) == 0, "libvirt was left with a key"
    product.ok("vm", "resize-disk", "first", "--size", f"{(last + 8) * 512 // MIB + 16}MiB")
    product.ok("start-vm", "first")
    assert text in enrolled.in_guest("first", f"dd if=/dev/vda bs=512 skip={last} count=1 2>/dev/null")
    product.ok("delete-vm", "first", "--yes")
    assert enrolled.shell("ls /var/lib/vgpuctl-agent/volumes").split() == []
