# SPDX-License-Identifier: Apache-2.0
"""Keeps bridges for VMs on a host, beside whatever manages its network, and takes back what would cut it off.

Runs on the host, under any Python that Ansible supports there. A bridge is a link of the kernel's and a unit that makes
it again at each boot; files of the host's own network manager are left alone. A network card that has an address, or by
which the host sends anything, is never made the port of a bridge: its VLANs can be.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: host_bridges
short_description: Keeps bridges with a network card or a VLAN of one as their port
description: A failure begins with its code, as C([host.no_such_port] text); what was begun is then taken back.
author: vgpuctl
options:
  bridges:
    description: "Each with name, port (a network card) and, where its frames are tagged, vlan."
    type: list
    elements: dict
    required: true
    options:
      name: {description: At most ten characters., type: str, required: true}
      port: {description: A network card of the host's., type: str, required: true}
      vlan: {description: 1 to 4094; none means frames without a tag., type: int}
  root: {description: Below which units are written., type: path, default: /}
"""

NAME = re.compile(r"[a-z][a-z0-9-]{0,9}")
"""With a dot and a VLAN behind it, it still is a name that the kernel takes."""
RESERVED = ("virbr", "vgb")
"""libvirt's, and those that agents make for networks of tenants."""
PREFIX = "vgpuctl-bridge-"
ROUTE = (("gateway", "via"), ("dev", "dev"), ("protocol", "proto"), ("metric", "metric"), ("prefsrc", "src"))
"""What ``ip`` tells of a route, and how it is told it."""
FOREVER = (1 << 32) - 1
"""Seconds that an address is valid which does not expire."""
UNIT = """\
# By vgpuctl.
[Unit]
Description=Bridge {name} for VMs
After=network.target sys-subsystem-net-devices-{device}.device
Wants=sys-subsystem-net-devices-{device}.device
Before=libvirtd.service virtqemud.service vgpuctl-agent.service
ConditionPathExists=!/sys/class/net/{name}

[Service]
Type=oneshot
RemainAfterExit=yes
{commands}

[Install]
WantedBy=multi-user.target
"""


class Failed(Exception):
    """``code``: of the error that the operator gets."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Bridge:
    """One that is wanted. ``lower``: the link that becomes its port, the card itself or a VLAN of it."""

    def __init__(self, given: dict[str, object]) -> None:
        self.name, self.port, self.vlan = str(given["name"]), str(given["port"]), given.get("vlan")
        self.lower = self.port if self.vlan is None else f"{self.name}.{self.vlan}"

    def commands(self) -> list[list[str]]:
        """Of ``ip link``, from nothing to the whole. The host takes no address in the networks of its VMs."""
        vlan = [] if self.vlan is None else [
            ["add", "link", self.port, "name", self.lower, "type", "vlan", "id", str(self.vlan)],
            ["set", self.lower, "addrgenmode", "none"],
        ]  # fmt: skip
        return [
            *vlan,
            ["add", self.name, "type", "bridge", "stp_state", "0", "forward_delay", "0"],
            ["set", self.name, "addrgenmode", "none"],
            ["set", self.lower, "master", self.name],
            *(["set", one, "up"] for one in dict.fromkeys((self.port, self.lower, self.name))),
        ]

    def unit(self, program: str) -> str:
        lines = "\n".join(f"ExecStart={program} link {' '.join(words)}" for words in self.commands())
        return UNIT.format(name=self.name, device=self.port.replace("-", "\\x2d"), commands=lines)


class Network:
    """The host's links, as ``ip`` tells and changes them."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.program = module.get_bin_path("ip", required=True)
        self.undo: list[list[str]] = []

    def told(self, *words: str) -> list[dict[str, object]]:
        code, out, err = self.module.run_command([self.program, "-json", *words])
        if code != 0:
            raise Failed("host.network_unknown", f"ip {' '.join(words)}: {err.strip()[-200:]}")
        return json.loads(out or "[]")

    def links(self) -> dict[str, dict[str, object]]:
        """By name, with their addresses."""
        addresses = {str(link["ifname"]): link.get("addr_info", []) for link in self.told("address", "show")}
        links = {str(link["ifname"]): link for link in self.told("-details", "link", "show")}
        return {name: {**link, "addr_info": addresses.get(name, [])} for name, link in links.items()}

    def reach(self) -> dict[str, list[str]]:
        """Every address and way out, which have to be there afterwards as before. With the words for ``ip`` that put
        it back, addresses first."""
        found = {
            f"address {one['local']} on {name}": ["address", "add", *_address_words(one), "dev", name]
            for name, link in self.links().items()
            for one in addresses_of(link)
        }
        for family, route in self.routes("default"):
            words = [word for key, name in ROUTE if route.get(key) is not None for word in (name, str(route[key]))]
            where = f"way out by {route.get('gateway', 'no gateway')} on {route.get('dev')}"
            found[where] = [family, "route", "add", "default", *words]
        return found

    def routes(self, *which: str) -> list[tuple[str, dict[str, object]]]:
        """Of each family, one for each link where there are several."""
        found = []
        for family in ("-4", "-6"):
            for route in self.told(family, "route", "show", *which):
                found += [(family, {**route, **hop}) for hop in route.get("nexthops", [route])]
        return found

    def change(self, words: list[str]) -> None:
        """:raises Failed: ``host.bridge_refused``"""
        code, _, err = self.module.run_command([self.program, "link", *words])
        if code != 0:
            raise Failed("host.bridge_refused", f"ip link {' '.join(words)}: {err.strip()[-200:]}")
        if words[0] == "add":
            self.undo.append(["delete", words[words.index("name") + 1] if "name" in words else words[1]])
        elif "master" in words:
            self.undo.append(["set", words[1], "nomaster"])

    def take_back(self, before: dict[str, list[str]]) -> list[str]:
        """What is not as before even then."""
        for words in reversed(self.undo):
            self.module.run_command([self.program, "link", *words])
        for where in self.lost(before):
            self.module.run_command([self.program, *before[where]])
        return self.lost(before)

    def lost(self, before: dict[str, list[str]]) -> list[str]:
        there = self.reach()
        return [where for where in before if where not in there]


def _address_words(one: dict[str, object]) -> list[str]:
    """Of an address that ``ip`` has told."""
    words = [f"{one['local']}/{one['prefixlen']}"]
    for key, name in (("broadcast", "broadcast"), ("scope", "scope")):
        words += [name, str(one[key])] if one.get(key) else []
    for key, name in (("valid_life_time", "valid_lft"), ("preferred_life_time", "preferred_lft")):
        words += [name, "forever" if one.get(key, FOREVER) == FOREVER else str(one[key])]
    return words


def addresses_of(link: dict[str, object]) -> list[dict[str, object]]:
    """Without those that only count on the link itself."""
    return [one for one in link.get("addr_info", []) if one.get("scope") != "link"]


def _check(bridges: list[Bridge], network: Network, links: dict[str, dict[str, object]]) -> None:
    """:raises Failed: before anything is changed"""
    # the kernel's own are those of addresses, which are looked at, and those of the link alone
    ways = {route.get("dev"): route["dst"] for _, route in network.routes() if route.get("protocol") != "kernel"}
    names = [bridge.name for bridge in bridges]
    for bridge in bridges:
        if not NAME.fullmatch(bridge.name) or bridge.name.startswith(RESERVED) or names.count(bridge.name) > 1:
            raise Failed("host.bridge_invalid", f"{bridge.name!a} is no name for a bridge here, or named twice")
        if bridge.vlan is not None and not 1 <= int(str(bridge.vlan)) <= 4094:
            raise Failed("host.bridge_invalid", f"bridge {bridge.name}: there is no VLAN {bridge.vlan}")
        if bridge.port not in links:
            raise Failed("host.no_such_port", f"bridge {bridge.name}: the host has no network card {bridge.port!a}")
        _check_free(bridge, links)
        if bridge.vlan is None and bridge.port in ways:
            raise Failed(
                "host.port_in_use",
                f"the host sends by network card {bridge.port} to {ways[bridge.port]}: as a port of bridge "
                f"{bridge.name} it would not; give the bridge a VLAN or another card",
            )


def _check_free(bridge: Bridge, links: dict[str, dict[str, object]]) -> None:
    there, port = links.get(bridge.name), links[bridge.port]
    if there is not None and kind_of(there) != "bridge":
        raise Failed("host.bridge_invalid", f"{bridge.name} is there and is no bridge")
    if bridge.vlan is None and addresses_of(port):
        raise Failed(
            "host.port_in_use",
            f"network card {bridge.port} has {addresses_of(port)[0]['local']}: as a port of bridge {bridge.name} it "
            f"would lose it; give the bridge a VLAN or another card",
        )
    lower = links.get(bridge.lower, {})
    if lower.get("master") not in {None, bridge.name}:
        raise Failed("host.port_in_use", f"{bridge.lower} is a port of {lower['master']} already")


def kind_of(link: dict[str, object]) -> object:
    details = link.get("linkinfo")
    return details.get("info_kind") if isinstance(details, dict) else None


def _missing(bridge: Bridge, links: dict[str, dict[str, object]]) -> list[list[str]]:
    """Commands whose effect is not there yet."""
    wanted = []
    for words in bridge.commands():
        name = words[words.index("name") + 1] if "name" in words else words[1]
        there = links.get(name, {})
        done = {
            "add": bool(there),
            "up": "UP" in there.get("flags", []),
            "addrgenmode": bool(there) and there.get("inet6_addr_gen_mode", "none") == "none",  # not said without IPv6
            "master": there.get("master") == bridge.name,
        }[words[0] if words[0] == "add" else words[3] if words[2] == "type" else words[2]]
        if not done:
            wanted.append(words)
    return wanted


def _apply(network: Network, commands: list[list[str]]) -> None:
    """All of them, or none.

    :raises Failed: ``host.bridge_refused``, ``host.network_lost``
    """
    before = network.reach()
    try:
        _change(network, commands, before)
    except Failed as failed:
        lost = network.take_back(before)
        if lost:
            raise Failed("host.network_lost", f"{failed}; it does not have {', '.join(lost[:3])} back") from failed
        raise


def _change(network: Network, commands: list[list[str]], before: dict[str, list[str]]) -> None:
    for words in commands:
        network.change(words)
    lost = network.lost(before)
    if lost:
        raise Failed("host.network_lost", f"the host would have lost {', '.join(lost[:3])}")


def _remove_units(module: AnsibleModule, bridges: list[Bridge], units: Path) -> list[str]:
    """Names of those whose bridge is not wanted any more. VMs may use the bridge: it stays until the next boot."""
    kept = {f"{PREFIX}{bridge.name}.service" for bridge in bridges}
    gone = [path for path in sorted(units.glob(f"{PREFIX}*.service")) if path.name not in kept]
    for path in gone:
        if not module.check_mode:
            module.run_command(["systemctl", "disable", path.name])
            path.unlink()
    return [path.name for path in gone]


def _write_units(module: AnsibleModule, bridges: list[Bridge], units: Path, program: str) -> list[str]:
    """Names of those that were not so, or that would not run at the next boot."""
    changed = []
    for bridge in bridges:
        name = f"{PREFIX}{bridge.name}.service"
        path = units / name
        wanted = bridge.unit(program)
        same = path.exists() and path.read_text(encoding="utf-8") == wanted
        if same and module.run_command(["systemctl", "is-enabled", "--quiet", name])[0] == 0:
            continue
        changed.append(name)
        if not module.check_mode:
            path.write_text(wanted, encoding="utf-8")
            module.run_command(["systemctl", "daemon-reload"])
            code, _, err = module.run_command(["systemctl", "enable", name])
            if code != 0:
                raise Failed("host.bridge_refused", f"{name} cannot be switched on: {err.strip()[-200:]}")
    return changed


def main() -> None:
    """Ansible's entry point. A connection that breaks meanwhile does not end it half-way."""
    of_one = {"name": {"type": "str", "required": True}, "port": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "bridges": {
                "type": "list", "elements": "dict", "required": True, "options": {**of_one, "vlan": {"type": "int"}},
            },
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )  # fmt: skip
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    directory = Path(module.params["root"]) / "etc/systemd/system"
    network, bridges = Network(module), [Bridge(one) for one in module.params["bridges"]]
    try:
        links = network.links()
        _check(bridges, network, links)
        commands = [words for bridge in bridges for words in _missing(bridge, links)]
        if not module.check_mode:
            _apply(network, commands)
        units = _remove_units(module, bridges, directory) + _write_units(module, bridges, directory, network.program)
    except Failed as failed:
        module.fail_json(msg=f"[{failed.code}] {failed}")
    module.exit_json(changed=bool(commands or units), commands=[" ".join(words) for words in commands], units=units)


if __name__ == "__main__":
    main()
