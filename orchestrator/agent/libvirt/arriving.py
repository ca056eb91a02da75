# SPDX-License-Identifier: Apache-2.0
"""Whether a definition that comes with a running VM is the one that this agent made for it here.

Both are libvirt's own text, from hosts whose versions may differ. What libvirt fills in by itself is left out of both,
where that reaches nothing but the guest; all else has to be the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final
from xml.etree import ElementTree as ET

from orchestrator.core.domain_xml.guest_agent import is_guest_agent

_DIGITS: Final = r"[0-9]{1,9}"
_FILLED_VALUES: Final = {
    "/@id": _DIGITS,
    "/os/@firmware": r"efi",
    "/os/type/@machine": r"[A-Za-z0-9._+-]+",
    "/devices/disk/driver/@detect_zeroes": r"unmap",
    "/devices/disk/source/@index": _DIGITS,
    "/devices/disk/backingStore/@index": _DIGITS,
    "/devices/interface/source/@portid": r"[0-9a-f-]{36}",
    "/devices/interface/source/@bridge": r"[A-Za-z0-9._-]{1,15}",
    "/devices/interface/target/@dev": r"vnet[0-9]+",
    "/devices/serial/source/@path": r"/dev/pts/[0-9]+",
    "/devices/console/source/@path": r"/dev/pts/[0-9]+",
    "/devices/console/@tty": r"/dev/pts/[0-9]+",
}
"""Attributes, and what they may then say."""
_OF_THE_GUEST: Final = frozenset({"/metadata", "/os/firmware", "/devices/controller"})
"""Elements that only describe, choose among installed firmware, or are the guest's own hardware."""
_EMPTY: Final = frozenset(
    {"/devices/disk/backingStore", "/devices/interface/target", "/devices/serial/source", "/devices/console/source"}
)
"""Elements that libvirt adds where nothing is left in them. Beneath a disk on an image there is something."""
_IMPLICIT: Final[dict[str, tuple[str, str, set[tuple[str | None, str | None]]]]] = {
    "input": ("type", "bus", {("mouse", "ps2"), ("keyboard", "ps2")}),
    "audio": ("type", "path", {("none", None)}),
    "watchdog": ("model", "action", {("itco", "reset")}),
}
"""Devices that libvirt adds to a machine or a screen: two attributes, and what they say of such a one."""
_INSTALLED: Final = "/usr/share/"


def differences(own: str, coming: str) -> tuple[str, ...]:
    """Paths of what is not the same, for people; nothing: it is the same VM. Both are XML, ``own`` libvirt's of what is
    defined here."""
    if "<!" in coming or "<?" in coming.removeprefix("<?xml"):
        return ("a document type, a comment or an instruction",)
    try:
        ours, theirs = ET.fromstring(own), ET.fromstring(coming)  # noqa: S314 - without a document type
    except ET.ParseError:
        return ("what is not XML",)
    if any((element.tail or "").strip() for element in theirs.iter()):
        return ("text after an element",)  # libvirt takes it for a part of the text before
    for root in (ours, theirs):
        _leave_out(root, "")
    same_kind = ours.tag == theirs.tag
    return tuple(dict.fromkeys(_differing(ours, theirs, ""))) if same_kind else (theirs.tag,)


def _leave_out(element: ET.Element, path: str) -> None:
    named = path == "/devices/interface/source" and "network" not in element.attrib  # a bridge by its own name
    for name, value in () if named else list(element.attrib.items()):
        if re.fullmatch(_FILLED_VALUES.get(f"{path}/@{name}", "(?!)"), value, re.ASCII):
            del element.attrib[name]
    for child in list(element):
        where = f"{path}/{child.tag}"
        judge = _JUDGES.get(where)
        if where in _OF_THE_GUEST or _is_filled(child, path) or (judge is not None and judge(child)):
            element.remove(child)
            continue
        _leave_out(child, where)
        if where in _EMPTY and not (child.attrib or len(child) or (child.text or "").strip()):
            element.remove(child)


def _is_filled(child: ET.Element, path: str) -> bool:
    """A device's place on the guest's own buses, and its name there."""
    device = re.fullmatch(r"/devices/[a-z]+", path) is not None
    return device and child.tag in {"alias", "address"} and "uuid" not in child.attrib


def _is_implicit(device: ET.Element) -> bool:
    first, second, known = _IMPLICIT[device.tag]
    return (device.get(first), device.get(second)) in known and all(part.tag in {"alias", "address"} for part in device)


def _is_processor(cpu: ET.Element) -> bool:
    """libvirt says which features the host's model has. ``numa`` would give it more memory, of another kind."""
    return cpu.get("mode") == "host-passthrough" and cpu.find("numa") is None and cpu.find("topology") is None


def _is_partition(resource: ET.Element) -> bool:
    return not resource.attrib and [(part.tag, part.text) for part in resource] == [("partition", "/machine")]


def _is_label(label: ET.Element) -> bool:
    """One that the host's libvirt makes for each VM anew, or that there is none on a host without such a thing."""
    kind, named = label.get("type"), {part.tag for part in label}
    if kind == "none":
        return label.get("model") == "none" and not named
    return kind == "dynamic" and label.get("relabel", "yes") == "yes" and named <= {"label", "imagelabel"}


def _is_installed_loader(loader: ET.Element) -> bool:
    """The firmware that libvirt found on the host that the VM comes from; what runs came from its memory."""
    path = (loader.text or "").strip()
    return (
        _is_installed(path)
        and loader.attrib.items() >= {("readonly", "yes"), ("type", "pflash")}
        and loader.attrib.keys() <= {"readonly", "type", "format", "secure", "stateless"}
    )


def _is_installed(path: str) -> bool:
    return path.startswith(_INSTALLED) and ".." not in path.split("/")


def _has_installed_template(nvram: ET.Element) -> bool:
    """Only forgets what libvirt found: where the variables are is compared."""
    if _is_installed(nvram.get("template", "")):
        for name in ("template", "templateFormat", "format"):
            nvram.attrib.pop(name, None)
    return False


def _is_vfio(driver: ET.Element) -> bool:
    """The only way QEMU has to a PCI device, which libvirt writes down once the VM runs."""
    return driver.attrib == {"name": "vfio"} and not len(driver)


def _is_usual_burst(length: ET.Element) -> bool:
    """Seconds, which libvirt writes down of bursts that were taken away."""
    return length.text == "1"


def _is_learnt_server(parameter: ET.Element) -> bool:
    """Who answers DHCP differs with the host; our filter drops such answers of every VM."""
    return parameter.get("name") == "DHCPSERVER" and bool(
        re.fullmatch(r"[0-9.]{7,15}", parameter.get("value", ""), re.ASCII)
    )


_JUDGES: Final[dict[str, Callable[[ET.Element], bool]]] = {
    "/cpu": _is_processor,
    "/resource": _is_partition,
    "/seclabel": _is_label,
    "/os/loader": _is_installed_loader,
    "/devices/channel": is_guest_agent,
    "/devices/hostdev/driver": _is_vfio,
    **{f"/devices/disk/iotune/total_{what}_sec_max_length": _is_usual_burst for what in ("bytes", "iops")},
    "/os/nvram": _has_installed_template,
    "/devices/interface/filterref/parameter": _is_learnt_server,
    **{f"/devices/{tag}": _is_implicit for tag in _IMPLICIT},
}
"""What is left out where it is as libvirt writes it."""


def _differing(own: ET.Element, coming: ET.Element, path: str) -> Iterator[str]:
    if (own.text or "").strip() != (coming.text or "").strip():
        yield path
    for name in sorted(own.attrib.keys() | coming.attrib.keys()):
        if own.get(name) != coming.get(name):
            yield f"{path}/@{name}"
    ours, theirs = _by_tag(own), _by_tag(coming)
    for tag in sorted(ours.keys() | theirs.keys()):
        where = f"{path}/{tag}"
        if len(ours[tag]) != len(theirs[tag]):
            yield where
        for expected, actual in zip(ours[tag], theirs[tag], strict=False):
            yield from _differing(expected, actual, where)


def _by_tag(element: ET.Element) -> defaultdict[str, list[ET.Element]]:
    children: defaultdict[str, list[ET.Element]] = defaultdict(list)
    for child in element:
        children[child.tag].append(child)
    return children
