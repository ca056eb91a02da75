# SPDX-License-Identifier: Apache-2.0
"""Makes a host a chassis of the site's OVN: its name, its address for frames of VMs, and whom it believes.

Runs on the host, under any Python that Ansible supports there. Settings are those of ovn-controller(8), which reads
them out of Open vSwitch's database."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: host_ovn
short_description: Keeps what a host says to OVN
description: A failure begins with its code, as C([host.foreign_ovn] text); nothing was changed then.
author: vgpuctl
options:
  name: {description: What it is called., type: str, required: true}
  central: {description: Addresses of the central servers., type: list, elements: str, required: true}
  network: {description: Where its own address is., type: str, required: true}
  mtu: {description: Bytes of the largest packet of a VM., type: int, required: true}
  mappings: {description: Physical networks and the bridges of Open vSwitch that lead there., type: dict, default: {}}
  gateway: {description: Whether it carries what others send out., type: bool, default: false}
  root: {description: Below which files are., type: str, default: ""}
  write: {description: Without it what is there is judged alone., type: bool, default: true}
"""

GENEVE_BYTES = 58
"""As orchestrator/core/ovn.py has it."""


class Host:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.root = Path(module.params["root"] or "/")
        self.keys = self.root / "etc/ovn/vgpuctl/host"

    def fail(self, code: str, text: str) -> None:
        self.module.fail_json(msg=f"[host.{code}] {text}")

    def vsctl(self, *words: str) -> str:
        code, out, err = self.module.run_command(["ovs-vsctl", "--timeout=30", *words])
        if code != 0:
            self.fail("ovs_silent", f"{(err or out).strip()[-200:]}; start openvswitch-switch there")
        return str(out)

    def known(self) -> dict[str, str]:
        """What it says now; nothing where there is no Open vSwitch. One that is stopped may be somebody else's."""
        places = [self.root / place / "openvswitch/conf.db" for place in ("etc", "var/lib")]
        if self.module.get_bin_path("ovs-vsctl") is None or not any(place.exists() for place in places):
            return {}
        out = self.vsctl("--format=json", "--columns=external_ids", "list", "Open_vSwitch", ".")
        _, pairs = json.loads(out)["data"][0][0]
        return {str(key): str(value) for key, value in pairs}

    def address(self) -> str:
        """Its own in the network, of a card that passes frames of VMs whole."""
        try:
            network = ipaddress.ip_network(self.module.params["network"])
        except ValueError:
            self.fail("ovn_address", f"{self.module.params['network']} is no network: write it as 192.0.2.0/24")
        code, out, err = self.module.run_command(["ip", "-json", "address", "show"])
        if code != 0:
            self.fail("network_unknown", f"ip address show: {err.strip()[-200:]}")
        found = [
            (one["local"], link)
            for link in json.loads(out)
            for one in link.get("addr_info", [])
            if ipaddress.ip_address(one["local"]) in network
        ]
        if len(found) != 1:
            has = ", ".join(address for address, _ in found) or "no address"
            self.fail("ovn_address", f"the host has {has} in {network}, and has to have one there")
        address, link = found[0]
        wanted = self.module.params["mtu"] + GENEVE_BYTES + (20 if network.version == 6 else 0)
        if link["mtu"] < wanted:
            self.fail(
                "ovn_mtu", f"network card {link['ifname']} of {address} passes {link['mtu']} bytes, and VMs' packets "
                f"of {self.module.params['mtu']} are {wanted} on their way",
            )  # fmt: skip
        return str(address)

    def wanted(self, address: str) -> dict[str, str]:
        central = [f"[{each}]" if ":" in each else each for each in self.module.params["central"]]
        return {
            "system-id": self.module.params["name"],
            "ovn-remote": ",".join(f"ssl:{each}:6642" for each in central),
            "ovn-encap-type": "geneve",
            "ovn-encap-ip": address,
            **self.outside(),
        }

    def outside(self) -> dict[str, str]:
        """What is said alone: an operator's own settings stay where the inventory has none."""
        mappings = self.module.params["mappings"]
        said = {"ovn-bridge-mappings": ",".join(f"{name}:{bridge}" for name, bridge in sorted(mappings.items()))}
        gateway = {"ovn-cms-options": "enable-chassis-as-gw"} if self.module.params["gateway"] else {}
        return (said if mappings else {}) | gateway

    def check_bridges(self) -> None:
        for name, bridge in self.module.params["mappings"].items():
            code, _, _ = self.module.run_command(["ovs-vsctl", "--timeout=30", "br-exists", bridge])
            if code == 2:
                self.fail("ovn_bridge", f"there is no bridge {bridge} of Open vSwitch, which {name} is to be on")

    def files(self) -> dict[Path, str]:
        words = [f"--ovn-controller-ssl-{option}={self.keys / file}" for option, file in (
            ("key", "key.pem"), ("cert", "certificate.pem"), ("ca-cert", "central.pem"),
        )]  # fmt: skip
        return {
            self.root / "etc/default/ovn-host": f'# By vgpuctl.\nOVN_CTL_OPTS="{" ".join(words)}"\n',
            self.root / "etc/openvswitch/system-id.conf": f"{self.module.params['name']}\n",
        }


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "central": {"type": "list", "elements": "str", "required": True},
            "network": {"type": "str", "required": True},
            "mtu": {"type": "int", "required": True},
            "mappings": {"type": "dict", "default": {}},
            "gateway": {"type": "bool", "default": False},
            "root": {"type": "str", "default": ""},
            "write": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    host = Host(module)
    known, wanted = host.known(), host.wanted(host.address())
    if "ovn-remote" in known and not host.keys.is_dir():
        host.fail("foreign_ovn", f"the host is in the OVN of {known['ovn-remote']}, which is not the site's")
    if not module.params["write"]:
        module.exit_json(changed=False, encapsulation=wanted["ovn-encap-ip"])
    if not module.check_mode:
        host.check_bridges()
    differs = {key: value for key, value in wanted.items() if known.get(key) != value}
    files = {
        path: text
        for path, text in host.files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    if not module.check_mode:
        if differs:
            host.vsctl("set", "Open_vSwitch", ".", *(f"external-ids:{key}={value}" for key, value in differs.items()))
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    module.exit_json(changed=bool(differs or files), settings=sorted(differs), files=[str(path) for path in files])


if __name__ == "__main__":
    main()
