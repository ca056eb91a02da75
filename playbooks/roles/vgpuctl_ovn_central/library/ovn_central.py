# SPDX-License-Identifier: Apache-2.0
"""Says to Debian's ovn-central how it keeps its databases: over TLS, alone or as one of several.

Runs there, under any Python that Ansible supports there. The options are those of ovn-ctl(8). Where ovn-northd finds
the databases is said in the file that ovn-ctl reads instead of them: without that file its ``stop_northd``, with which
Debian's unit ends ovn-northd, ends both databases too, also those that a restart has begun meanwhile."""

from __future__ import annotations

import socket
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: ovn_central
short_description: Keeps the options of a server of OVN's databases
description: A failure begins with its code, as C([host.foreign_ovn] text); nothing was changed then.
author: vgpuctl
options:
  addresses: {description: Of all of its members., type: list, elements: str, required: true}
  own: {description: This one's., type: str, required: true}
  root: {description: Below which files are., type: str, default: ""}
  write: {description: Without it the options are judged alone., type: bool, default: true}
"""

COUNTS = (1, 3, 5)
"""A majority of two is both: two are worse than one."""
PORTS = {"nb": 6643, "sb": 6644}
"""Where members of a cluster reach each other."""
CLIENTS = 6641
"""Where a server of the northbound is reached, be it alone or a member."""
WAIT_S = 2.0
HEAD = "# By vgpuctl.\n"
"""Of the file with the options. What the package began by itself has databases too, and nothing in them."""


class Central:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.addresses, self.own = module.params["addresses"], module.params["own"]
        self.root = Path(module.params["root"] or "/")
        self.file = self.root / "etc/default/ovn-central"
        self.northd = self.root / "etc/ovn/ovn-northd-db-params.conf"
        self.keys = self.root / "etc/ovn/vgpuctl/central"

    def check(self) -> None:
        """Ends the run where it cannot be, or is not ours."""
        if len(self.addresses) not in COUNTS or len(set(self.addresses)) != len(self.addresses):
            self.fail(
                "ovn_members", f"{len(self.addresses)} central servers, and there may be 1, 3 or 5 different ones"
            )
        if self.own not in self.addresses:
            self.fail("ovn_members", f"{self.own} is none of the central servers {', '.join(self.addresses)}")
        if self.database("nb").exists() and not self.keys.is_dir():
            self.fail(
                "foreign_ovn", f"{self.database('nb')} is of somebody else's OVN: name its servers to vgpuctl instead"
            )

    def fail(self, code: str, text: str) -> None:
        self.module.fail_json(msg=f"[host.{code}] {text}")

    def database(self, which: str) -> Path:
        return self.root / f"var/lib/ovn/ovn{which}_db.db"

    def joins(self) -> str | None:
        """Whose cluster this one becomes a member of; None: it begins one. What was said once stays: with databases
        nobody joins again. ovn-ctl throws those of a lone server away that joins, so that one has to begin."""
        known = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
        has = [self.database(which).exists() for which in PORTS]
        if all(has) and "--db-nb-cluster-local-addr=" in known:
            remote = known.partition("--db-nb-cluster-remote-addr=")[2]
            return remote.split()[0] if remote else None
        others = [address for address in self.addresses if address != self.own]
        running = next((address for address in others if answers(address, PORTS["nb"])), None)
        was_alone = any(has) and known.startswith(HEAD) and "--db-nb-cluster-local-addr=" not in known
        lone = None if running else next((address for address in others if answers(address, CLIENTS)), None)
        if lone or (was_alone and running):
            self.fail(
                "ovn_members", f"{lone or self.own} has databases of its own, which would be lost: what has them has "
                "to be the first of the central servers, and to be set up first",
            )  # fmt: skip
        if running is None and self.own != self.addresses[0]:
            self.fail("ovn_members", f"no other central server answers, and the databases begin on {self.addresses[0]}")
        return running

    def options(self) -> list[str]:
        key, certificate = self.keys / "key.pem", self.keys / "certificate.pem"
        words = []
        joins = self.joins() if len(self.addresses) > 1 else None
        for which, believed in (("nb", "central.pem"), ("sb", "all.pem")):
            prefix = f"--ovn-{which}-db-ssl"
            words += [f"{prefix}-key={key}", f"{prefix}-cert={certificate}", f"{prefix}-ca-cert={self.keys / believed}"]
            if len(self.addresses) > 1:
                words += self.cluster(which, joins)
        words += [f"--ovn-northd-ssl-key={key}", f"--ovn-northd-ssl-cert={certificate}"]
        return [*words, f"--ovn-northd-ssl-ca-cert={self.keys / 'central.pem'}"]

    def northd_options(self) -> list[str]:
        """Of ovn-northd(8). Of several the one beside the southbound's leader is at work: over TLS it would be a host
        there, and write no flows."""
        north, south = (f"unix:{self.root / 'var/run/ovn'}/ovn{which}_db.sock" for which in PORTS)
        if len(self.addresses) > 1:
            north = ",".join(f"ssl:{_bracketed(address)}:{CLIENTS}" for address in self.addresses)
        return [f"--ovnnb-db={north}", f"--ovnsb-db={south}"]

    def cluster(self, which: str, joins: str | None) -> list[str]:
        words = [f"--db-{which}-cluster-local-addr={_bracketed(self.own)}", f"--db-{which}-cluster-local-proto=ssl"]
        words += [f"--db-{which}-cluster-local-port={PORTS[which]}"]
        if joins is not None:
            words += [f"--db-{which}-cluster-remote-addr={_bracketed(joins)}", f"--db-{which}-cluster-remote-proto=ssl"]
            words += [f"--db-{which}-cluster-remote-port={PORTS[which]}"]
        return words


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=WAIT_S).close()
    except OSError:
        return False
    return True


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "addresses": {"type": "list", "elements": "str", "required": True},
            "own": {"type": "str", "required": True},
            "root": {"type": "str", "default": ""},
            "write": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    central = Central(module)
    central.check()
    texts = {
        central.file: f'{HEAD}OVN_CTL_OPTS="{" ".join(central.options())}"\n',
        central.northd: f"{' '.join(central.northd_options())}\n",
    }
    if not module.params["write"]:
        module.exit_json(changed=False)
    changed = {
        file: text for file, text in texts.items() if not file.exists() or file.read_text(encoding="utf-8") != text
    }
    for file, text in {} if module.check_mode else changed.items():
        file.write_text(text, encoding="utf-8")
    module.exit_json(changed=bool(changed))


if __name__ == "__main__":
    main()
