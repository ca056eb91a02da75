# SPDX-License-Identifier: Apache-2.0
"""A VM that comes is the one that was defined here for it.

``moved_xml``: what libvirt says of a definition of ours (``defined``, inactive), and what it sent in its call to the
other libvirt when that VM, running, migrated (``sent``); captured on its socket, of a VM without vGPU, with the libvirt
and QEMU of Debian 12 and 13.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from orchestrator.adapters.agent_link.move_key import new_move_key
from orchestrator.agent import move_channel
from orchestrator.agent.libvirt import migration
from orchestrator.agent.libvirt.arriving import differences
from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.libvirt.domain_devices import parts_of
from orchestrator.agent.live_moves import LiveMoves, OtherHost
from orchestrator.core.actions.host_actions import DefineDomain, EnsureNetwork, StartDomain
from orchestrator.core.actions.live_move import LiveMove, MovedVm
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import InvalidInput, NotFound, Unknown
from tests.unit.agent.bench import Bench, domain_of

XML = Path(__file__).parent / "moved_xml"
VERSIONS = ("9.0", "11.3")
HOSTDEV = (
    "<hostdev mode='subsystem' type='pci' managed='no'><driver name='vfio'/><source>"
    "<address domain='0x0000' bus='{}' slot='0x00' function='0x1'/></source><alias name='hostdev0'/></hostdev>"
)


def defined(kind: str = "image", libvirt: str = "9.0") -> str:
    return (XML / f"{kind}-{libvirt}.defined.xml").read_text()


def sent(kind: str = "image", libvirt: str = "9.0") -> str:
    return (XML / f"{kind}-{libvirt}.sent.xml").read_text()


def with_device(xml: str, device: str) -> str:
    return xml.replace("</devices>", f"{device}</devices>")


@pytest.mark.parametrize("kind", ["image", "uefi"])
@pytest.mark.parametrize("source", VERSIONS)
@pytest.mark.parametrize("target", VERSIONS)
def test_what_libvirt_sends_is_what_was_defined(kind: str, source: str, target: str) -> None:
    assert differences(defined(kind, target), sent(kind, source)) == ()
    assert parts_of(sent(kind, source)).others == ()


def test_what_libvirt_fills_in_of_a_running_one_is_let_in() -> None:
    filled = sent()
    for plain, running in {
        "<domain type='kvm'": "<domain type='kvm' id='7'",
        "pc-q35-7.2": "pc-q35-10.0",
        "<source network='default'/>": "<source network='default' portid='b1a1f1de-5d7c-4e02-8b1c-0a9a9b1f3a55'"
        " bridge='virbr0'/><target dev='vnet12'/><alias name='net0'/>",
        "<console type='pty'>": "<console type='pty' tty='/dev/pts/4'><source path='/dev/pts/4'/>",
        "<memballoon model='none'/>": "<memballoon model='none'/><watchdog model='itco' action='reset'/>",
        "</domain>": "<resource><partition>/machine</partition></resource></domain>",
    }.items():
        assert plain in filled, plain
        filled = filled.replace(plain, running)
    assert differences(defined(), filled) == ()


@pytest.mark.parametrize(("said", "told"), [("unmap", ()), ("on", ("/devices/disk/driver/@detect_zeroes",))])
def test_one_that_was_started_before_zeros_gave_room_back_is_let_in(said: str, told: tuple[str, ...]) -> None:
    zeroes = "discard='unmap' detect_zeroes='unmap'"
    own = defined().replace("discard='unmap'", zeroes)
    assert own != defined()
    assert differences(own, sent()) == differences(defined(), sent().replace("discard='unmap'", zeroes)) == ()
    assert differences(own, sent().replace("discard='unmap'", f"discard='unmap' detect_zeroes='{said}'")) == told


AGENT = "<channel type='unix'>{}<target type='virtio' name='org.qemu.guest_agent.0'{}/></channel>"
SOCKET = "<source mode='bind' path='/{}/domain-7-default.train/org.qemu.guest_agent.0'/>"


@pytest.mark.parametrize("directory", ["var/lib/libvirt/qemu/channel/target", "run/libvirt/qemu/channel"])
def test_one_with_a_guest_agents_port_goes_where_there_is_none_and_back(directory: str) -> None:
    """VMs that were started before have none; their hosts' definitions have one."""
    own, runs = AGENT.format("", ""), AGENT.format(SOCKET.format(directory), " state='connected'")
    for ours, coming in ((own, ""), ("", runs), (own, runs)):
        assert differences(with_device(defined(), ours), with_device(sent(), coming)) == ()
    assert parts_of(with_device(sent(), runs)).others == ()


@pytest.mark.parametrize(
    "channel",
    [
        AGENT.format(SOCKET.format("run/libvirt"), ""),
        AGENT.format(SOCKET.format("run/libvirt/qemu/channel/../.."), ""),
        AGENT.format("<source mode='connect' path='/run/docker.sock'/>", ""),
        AGENT.format("<source mode='bind'><reconnect enabled='yes'/></source>", ""),
        AGENT.format("<log file='/etc/passwd'/>", ""),
        AGENT.format("", "").replace("guest_agent.0", "other.0"),
        AGENT.format("", "").replace("unix", "spicevmc"),
    ],
)
def test_no_other_port_comes_with_it(channel: str) -> None:
    assert differences(defined(), with_device(sent(), channel)) == ("/devices/channel",)
    assert any(other.startswith("channel") for other in parts_of(with_device(sent(), channel)).others)


def test_the_other_hosts_libvirt_names_the_socket() -> None:
    runs = with_device(sent(), AGENT.format(SOCKET.format("run/libvirt/qemu/channel"), ""))
    root = ET.fromstring(migration.arriving_text(runs, own="/here", other="/there", devices=()))
    (channel,) = root.findall("devices/channel")
    assert [part.tag for part in channel] == ["target"]


def test_what_libvirt_keeps_of_bursts_that_were_taken_away_is_let_in() -> None:
    limit, rest = "<total_iops_sec>200</total_iops_sec>", "<total_iops_sec_max_length>1</total_iops_sec_max_length>"
    target = "<target dev='vda' bus='virtio'/>"
    own = defined().replace(target, f"{target}<iotune>{limit}</iotune>")
    coming = sent().replace(target, f"{target}<iotune>{limit}{rest}</iotune>")
    assert own != defined()
    assert differences(own, coming) == ()
    assert differences(own, coming.replace(">1<", ">9<")) == ("/devices/disk/iotune/total_iops_sec_max_length",)


@pytest.mark.parametrize(("driver", "told"), [("name='vfio'", ()), ("name='xen'", ("/devices/hostdev/driver",))])
def test_a_running_function_s_driver_is_let_in_when_it_is_vfio(driver: str, told: tuple[str, ...]) -> None:
    """QEMU's driver for libvirt writes it into what is defined without, once it starts."""
    running = HOSTDEV.format("0x41").replace("name='vfio'", driver)
    plain = running.replace(f"<driver {driver}/>", "")
    assert differences(with_device(defined(), plain), with_device(sent(), running)) == told


@pytest.mark.parametrize("label", ["+64055:+64055", "libvirt-0d1a4c2e-3a7f-4c55-9f9c-0f6bb5a3f1c2"])
def test_a_label_that_libvirt_makes_is_let_in(label: str) -> None:
    made = f"<seclabel type='dynamic' model='dac' relabel='yes'><label>{label}</label></seclabel></domain>"
    assert differences(defined(), sent().replace("</domain>", made)) == ()


def test_its_vgpu_is_the_one_made_here() -> None:
    own, coming = (with_device(xml, HOSTDEV.format("0x41")) for xml in (defined(), sent()))
    assert differences(own, coming) == ()
    for bus in ("0x42", "0101"):
        assert differences(own, with_device(sent(), HOSTDEV.format(bus))) == ("/devices/hostdev/source/address/@bus",)
    assert differences(own, sent()) == ("/devices/hostdev",)


ATTACKS = {
    "nvdimm": ("</devices>", ("<memory model='nvdimm' access='shared'><source><path>/dev/sda</path></source>"
               "<target><size unit='KiB'>524288</size></target></memory></devices>")),
    "fwcfg": ("</domain>", "<sysinfo type='fwcfg'><entry name='opt/x' file='/etc/shadow'/></sysinfo></domain>"),
    "evdev": ("</devices>", "<input type='evdev'><source dev='/dev/input/event0'/></input></devices>"),
    "keyboard with a source": ("</devices>", "<input type='keyboard' bus='ps2'><source dev='/x'/></input></devices>"),
    "rom": ("<model type='virtio'/>", "<model type='virtio'/><rom file='/etc/shadow'/>"),
    "audio": ("</devices>", "<audio id='2' type='file' path='/etc/cron.d/x'/></devices>"),
    "tap": ("<model type='virtio'/>", "<model type='virtio'/><backend tap='/dev/sda' vhost='/dev/sda'/>"),
    "vsock": ("</devices>", "<vsock model='virtio'><cid auto='yes'/></vsock></devices>"),
    "another's label": ("</domain>", ("<seclabel type='static' model='apparmor' relabel='yes'>"
                        "<label>libvirt-11111111-2222-3333-4444-555555555555</label></seclabel></domain>")),
    "no label": ("</domain>", "<seclabel type='none' model='apparmor'/></domain>"),
    "base label": ("</domain>", ("<seclabel type='dynamic' model='selinux' relabel='yes'><baselabel>x</baselabel>"
                   "</seclabel></domain>")),
    "emulator": ("/usr/bin/qemu-system-x86_64", "/usr/../tmp/evil"),
    "no filter": ("<filterref filter='vgpuctl-guest'>", "<filterref filter='allow-arp'>"),
    "learns any address": ("value='dhcp'", "value='any'"),
    "not isolated": ("<port isolated='yes'/>", ""),
    "fewer limits": ("<target dev='vda' bus='virtio'/>", ("<target dev='vda' bus='virtio'/><iotune><total_iops_sec>9"
                     "</total_iops_sec></iotune>")),
    "another card": ("52:54:00:64:af:51", "52:54:00:64:af:52"),
    "vcpus": (">2</vcpu>", ">200</vcpu>"),
    "CPUs": ("<vcpu placement='static'>", "<vcpu placement='static' cpuset='0'>"),
    "memory": ("<memory unit='KiB'>262144", "<memory unit='KiB'>999999999"),
    "numa": ("<cpu mode='host-passthrough'", ("<cpu mode='host-passthrough'><numa><cell id='0' cpus='0-1' memory='1'/>"
             "</numa></cpu><cpu mode='host-passthrough'")),
    "huge pages": ("</domain>", "<memoryBacking><hugepages/></memoryBacking></domain>"),
    "its disk": ("/volumes/0d1a4c2e", "/volumes/1d1a4c2e"),
    "probed image": ("<format type='qcow2'/>", "<format type='raw'/>"),
    "another partition": ("</domain>", "<resource><partition>/system</partition></resource></domain>"),
    "dump on panic": ("</devices>", "<watchdog model='itco' action='dump'/></devices>"),
    "entity": ("<domain", "<!DOCTYPE domain [<!ENTITY x SYSTEM '/etc/shadow'>]><domain"),
    "not XML": ("</domain>", "</domain"),
    "text after an element": ("</emulator>", "<alias/>/../../tmp/evil</emulator>"),
    "a namespace": ("</devices>", "<x:vsock xmlns:x='y'/></devices>"),
    "instruction": ("<devices>", "<devices><?x y?>"),
    "QEMU's command line": ("</domain>", "<commandline xmlns='http://libvirt.org/schemas/domain/qemu/1.0'/></domain>"),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_was_not_defined_here_is_told(attack: str) -> None:
    plain, evil = ATTACKS[attack]
    assert plain in sent()
    assert differences(defined(), sent().replace(plain, evil, 1))


@pytest.mark.parametrize(
    ("plain", "evil"),
    [
        ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/../../tmp/evil.fd"),
        ("/usr/share/OVMF/OVMF_VARS_4M.fd", "/usr/share/../../etc/shadow"),
        ("readonly='yes' type='pflash'", "readonly='no' type='pflash'"),
        ("</nvram>", "x</nvram>"),
    ],
)
def test_firmware_is_installed_and_its_variables_are_where_they_were_defined(plain: str, evil: str) -> None:
    assert plain in sent("uefi")
    assert differences(defined("uefi"), sent("uefi").replace(plain, evil, 1))


def test_a_host_device_whose_address_cannot_be_read_is_none_that_is_left_out() -> None:
    """libvirt reads it as 0x41, so it may be any device of the host."""
    with pytest.raises(InvalidInput) as refused:
        parts_of(with_device(sent(), HOSTDEV.format("0101")))
    assert refused.value.code == "vm.xml_invalid"


def _moves(bench: Bench, directory: Path) -> LiveMoves:
    return LiveMoves(
        Libvirt("test:///default"), bench.domains, bench.wanted, directory, bench.belongings.check_started,
        bench.belongings.networks.reserve, sockets=directory,
    )  # fmt: skip


def test_a_vm_that_comes_has_its_address_reserved_as_one_that_starts(furnished: Bench, tmp_path: Path) -> None:
    """It is never started here, and its lease would be given to another card when it runs out."""
    bench = furnished
    bench.do(EnsureNetwork(name="default.blue", subnet="10.88.0.0/28"))
    bench.do(DefineDomain(vm=bench.vm, domain=replace(domain_of(bench.vm), network="default.blue")))
    with _moves(bench, tmp_path).coming(bench.vm, new_move_key(), new_move_key().certificate):
        network = ET.fromstring(bench.libvirt.networkLookupByName("default.blue").XMLDesc())
        assert [host.get("mac") for host in network.findall("ip/dhcp/host")] == [mac_address(bench.vm)]


def test_a_vm_that_has_left_is_not_started_where_its_definition_stayed_until_it_is_defined_anew(
    furnished: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tells that it has left may be heard by nobody, and libvirt may die before it has removed all of it."""
    bench, start = furnished, StartDomain(vm=furnished.vm)
    define = DefineDomain(vm=bench.vm, domain=domain_of(bench.vm))
    other = OtherHost(new_move_key(), new_move_key().certificate, (), str(tmp_path))
    bench.do(define)
    bench.do(start)

    def migrate(*_: object, gone: Callable[[MovedVm], None], **_more: object) -> None:
        bench.libvirt.lookupByUUIDString(bench.vm).destroy()
        gone(MovedVm(sent_bytes=7))

    def nobody_hears(_: MovedVm) -> None:
        raise Unknown("agent.connection_lost", "the controller is gone")

    monkeypatch.setattr(migration, "migrate", migrate)
    monkeypatch.setattr(move_channel, "leaving", lambda *_: nullcontext())
    with pytest.raises(Unknown):
        _moves(bench, tmp_path).leave(LiveMove(vm=bench.vm, devices=()), other, lambda _: True, nobody_hears)
    with pytest.raises(NotFound) as refused:
        bench.do(start)
    assert refused.value.code == "vm.not_found"
    assert not bench.domains.is_active(bench.vm)
    bench.do(define)
    bench.do(start)
    assert bench.domains.is_active(bench.vm)
