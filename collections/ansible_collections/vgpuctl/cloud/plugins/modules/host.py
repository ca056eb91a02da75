#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A GPU host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host
short_description: Enrol, change and give back GPU hosts of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - GPU hosts. Enrolling one installs the agent there; making it absent gives it back as it was.
extends_documentation_fragment:
  - vgpuctl.cloud.site
options:
  name:
    description: Its name.
    type: str
    required: true
  address:
    description: IP address or DNS name; for a new host. It cannot be changed.
    type: str
  port:
    description: Of its SSH server; 22 for a new host when left out.
    type: int
  user:
    description: Whom the server logs in as to install; V(root) for a new host when left out.
    type: str
  provisioning_key_file:
    description: File of the machine where the module runs, with the private key for installing; for a new host.
    type: path
  fingerprint:
    description:
      - Of the SSH host key that you trust, as C(ssh-keygen -lf) shows it; for a new host. Without it nothing is done,
        and the message says which key answers there.
    type: str
  gpus:
    description: V(unused), V(all) or PCI addresses with commas; V(unused) for a new host when left out.
    type: str
  take_over:
    description: Take a host that obeys another control plane.
    type: bool
    default: false
  cordoned:
    description: Whether no new VMs are placed there.
    type: bool
  labels:
    description: By key; null takes one away, those that are not named stay.
    type: dict
  vcpu_overcommit:
    description: vCPUs that VMs may have together for each of the host's, from 1.0; V(site) for the site's setting.
    type: str
  memory_overcommit:
    description: The same for memory.
    type: str
  allow_unconfined:
    description: Put new VMs there although neither AppArmor nor SELinux confines its QEMUs.
    type: bool
  pinnable_cpus:
    description:
      - CPUs kept for VMs that have theirs alone, as V(4-15,20-31); V(none) gives all back to VMs that share. While VMs
        have a place there it stays as it is.
    type: str
    version_added: 0.3.0
  rdma_nics:
    description:
      - PCI addresses of network cards whose virtual functions VMs may have, with commas between them; V(none) gives no
        more. VMs that have one keep it.
    type: str
    version_added: 0.3.0
  state:
    description: A host with VMs cannot be made V(absent).
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: A host in rack 3
  vgpuctl.cloud.host:
    name: gpu-1
    address: 192.0.2.11
    provisioning_key_file: ~/.ssh/gpu-hosts
    fingerprint: SHA256:uNiVztksCsDhcc0u9e8BrrJXVGYeGYi2YJKKkoDmSXs
    labels:
      rack: "3"

- name: No new VMs on it
  vgpuctl.cloud.host:
    name: gpu-1
    cordoned: true
"""

RETURN = r"""
host:
  description: As the API answers it, in check mode what would be set; empty when it is gone.
  returned: success
  type: dict
  sample: {name: gpu-1, state: ready, cordoned: false, labels: {rack: "3"}}
"""

import pathlib

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import (
    ApiError,
    answer,
    differing,
    given,
    merged,
    run,
    texts,
)

FIXED = ("address", "port", "user")
OVERCOMMIT = ("vcpu_overcommit", "memory_overcommit")
SHOWN = (*FIXED, "name", "cordoned", "labels", "allow_unconfined", "pinnable_cpus", "rdma_nics", *OVERCOMMIT)
MAX_CPU = 8191


def _present(site, before):
    params, name = site.params, site.params["name"]
    different = before and differing(before, given(params, FIXED))
    if different:
        raise ApiError("host.exists", f"there is already a host {name}: {different}", "make it absent first")
    if not before:
        body = _enrolment(site)
        if not site.check_mode:
            site.wait(site.post("hosts", body=body))
            before = site.get("hosts", name)
    elif not site.check_mode:
        _settled(site, before)
        before = site.get("hosts", name)
    new = {"name": name, **given(params, FIXED), "port": params["port"] or 22, "user": params["user"] or "root"}
    unset = {"cordoned": False, "labels": {}, "allow_unconfined": False, "pinnable_cpus": "", "rdma_nics": ""}
    there = before or {**new, **unset, **dict.fromkeys(OVERCOMMIT)}
    return _changed(site, there)


def _settled(site, host):
    """A host that is being enrolled is not ready to be changed."""
    if host["state"] == "enrolling":
        for operation in site.all("operations", active=True, subject=host["name"]):
            site.wait(operation["id"])


def _enrolment(site):
    params = site.params
    lacking = [name for name in ("address", "provisioning_key_file") if not params[name]]
    if lacking:
        hint = f"{' and '.join(lacking)} to enrol it"
        site.warn_of_missing(ApiError("host.unknown", f"no host is called {params['name']!a}", hint))
        return None
    port = params["port"] or 22
    if not params["fingerprint"]:
        found = site.post("hosts", "scan", body={"address": params["address"], "port": port})["fingerprint"]
        hint = "compare it on the host's console, then give it as fingerprint"
        raise ApiError("host.key_not_confirmed", f"the host at {params['address']} shows the key {found}", hint)
    try:
        key = pathlib.Path(params["provisioning_key_file"]).read_text("ascii")
    except (OSError, ValueError) as error:
        raise ApiError("file.unreadable", f"cannot read {params['provisioning_key_file']!a}: {error}") from error
    names = ("name", "address", "user", "fingerprint", "gpus", "take_over")
    return {**given(params, names), "port": port, "provisioning_key": key}


def _changed(site, there):
    params, name = site.params, there["name"]
    wanted = given(params, ["allow_unconfined"])
    wanted.update({key: _overcommit(key, params[key]) for key in OVERCOMMIT if params[key] is not None})
    cpus = params["pinnable_cpus"]
    if cpus is not None and _cpus(cpus) != _cpus(there["pinnable_cpus"] or "none"):
        wanted["pinnable_cpus"] = "" if cpus == "none" else cpus
    nics = params["rdma_nics"]
    if nics is not None and _addresses(nics) != _addresses(there["rdma_nics"]):
        wanted["rdma_nics"] = "" if nics == "none" else nics
    shown = {key: None if value == "site" else value for key, value in wanted.items()}
    labels = merged(there["labels"], texts(params["labels"]))
    cordoned = there["cordoned"] if params["cordoned"] is None else params["cordoned"]
    after = {**there, **shown, "labels": labels, "cordoned": cordoned}
    if site.check_mode:
        return after
    if any(after[key] != there[key] for key in (*wanted, "labels")):
        site.patch("hosts", name, body={**wanted, "labels": texts(params["labels"])})
    if cordoned != there["cordoned"]:
        site.post("hosts", name, "cordon" if cordoned else "uncordon")
    return site.get("hosts", name)


def _overcommit(name, text):
    try:
        return text if text == "site" else float(text)
    except ValueError as error:
        raise ApiError("request.invalid", f"{name} {text!a} is neither a number nor 'site'") from error


def _addresses(text):
    return set() if text in ("", "none") else {part.strip() for part in text.split(",")}


def _cpus(text):
    if text == "none":
        return set()
    found = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        ends = [one for one in (low, high if dash else low) if one.isascii() and one.isdigit() and len(one) <= 4]
        if len(ends) < 2 or not int(ends[0]) <= int(ends[1]) <= MAX_CPU:
            raise ApiError("host.cpus_invalid", f"{text!a} names no CPUs", "write them as 4-15,20-31, or none")
        found.update(range(int(ends[0]), int(ends[1]) + 1))
    return found


def _work(site):
    name = site.params["name"]
    before = site.find("host.unknown", "hosts", name) or {}
    if site.params["state"] == "present":
        after = _present(site, before)
    else:
        after = {}
        if before and not site.check_mode:
            site.wait(site.delete("hosts", name, unknown="host.unknown"))
    return answer(_shown(before), _shown(after), host=after)


def _shown(host):
    return {key: host.get(key) for key in SHOWN if host}


def main():
    run(
        {
            "name": {"type": "str", "required": True},
            "address": {"type": "str"},
            "port": {"type": "int"},
            "user": {"type": "str"},
            "provisioning_key_file": {"type": "path", "no_log": False},
            "fingerprint": {"type": "str"},
            "gpus": {"type": "str"},
            "take_over": {"type": "bool", "default": False},
            "cordoned": {"type": "bool"},
            "labels": {"type": "dict"},
            "vcpu_overcommit": {"type": "str"},
            "memory_overcommit": {"type": "str"},
            "allow_unconfined": {"type": "bool"},
            "pinnable_cpus": {"type": "str"},
            "rdma_nics": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        _work,
    )


if __name__ == "__main__":
    main()
