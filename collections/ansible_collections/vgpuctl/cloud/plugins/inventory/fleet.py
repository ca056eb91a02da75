# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts and VMs of a vgpuctl server, as ``vgpuctl inventory`` prints them."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: GPU hosts and VMs of a vgpuctl server
version_added: 0.1.0
author:
  - vgpuctl (@vgpuctl)
description:
  - Runs the command C(vgpuctl inventory) and adds what it prints.
  - The file's name must end in C(vgpuctl.yml) or C(vgpuctl.yaml).
  - VMs are called C(NAME.TENANT) and are reached through the server and their host, as C(vgpuctl ssh) does.
  - Groups are V(vgpuctl_hosts), V(vgpuctl_vms), V(site_*), V(gpu_model_*), V(tenant_*), V(offering_*), V(state_*).
  - For those who may see hosts there are V(host_*), V(driver_*) and V(label_*) too.
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: Must be V(vgpuctl.cloud.fleet).
    type: str
    required: true
    choices:
      - vgpuctl.cloud.fleet
  context:
    description: Which server; as C(vgpuctl context) names it. The current one when left out.
    type: str
  tenant:
    description: Only the VMs of this tenant.
    type: str
  user:
    description: Whom Ansible logs in to VMs as.
    type: str
    default: root
  program:
    description: The command; looked for beside Ansible's own Python and then in C(PATH) when left out.
    type: path
"""

EXAMPLES = r"""
# fleet.vgpuctl.yml
plugin: vgpuctl.cloud.fleet
user: debian
keyed_groups:
  - key: vgpuctl_label
    prefix: label
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from ansible import constants
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable

LIMIT_S = 300


class InventoryModule(BaseInventoryPlugin, Constructable):
    """Adds hosts, groups and variables; nothing that a host or a tenant wrote is ever a template."""

    NAME = "vgpuctl.cloud.fleet"

    def verify_file(self, path):
        return super().verify_file(path) and path.endswith(("vgpuctl.yml", "vgpuctl.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._refuse_unknown(self._read_config_data(path))
        found = self._ask()
        variables = found["_meta"]["hostvars"]
        for group, members in found.items():
            if group not in ("_meta", "all"):
                inventory.add_group(group)
                for host in members["hosts"]:
                    inventory.add_host(host, group=group)
        strict = self.get_option("strict")
        for host, own in variables.items():
            for name, value in own.items():
                inventory.set_variable(host, name, value)
            self._set_composite_vars(self.get_option("compose"), own, host, strict=strict)
            self._add_host_to_composed_groups(self.get_option("groups"), own, host, strict=strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), own, host, strict=strict)

    def _refuse_unknown(self, config):
        """Ansible passes over a slip of the pen, and the file would mean something else than it says."""
        known = constants.config.get_configuration_definitions("inventory", self._load_name)
        unknown = sorted(str(name) for name in set(config) - set(known))
        if unknown:
            raise AnsibleParserError(
                f"{', '.join(unknown)}: no option of {self.NAME}; 'ansible-doc -t inventory {self.NAME}' lists them"
            )

    def _ask(self):
        words = [self._program(), "inventory", "--user", self.get_option("user")]
        if self.get_option("tenant"):
            words += ["--tenant", self.get_option("tenant")]
        environment = dict(os.environ)
        if self.get_option("context"):
            environment["VGPUCTL_CONTEXT"] = self.get_option("context")
        try:
            done = subprocess.run(
                words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AnsibleParserError(f"{words[0]} cannot be run: {error}") from error
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode != 0:
            raise AnsibleParserError(said or f"{words[0]} ended with {done.returncode}")
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise AnsibleParserError(f"{words[0]} did not print JSON: {error}") from error

    def _program(self):
        named = self.get_option("program")
        beside = str(pathlib.Path(sys.executable).with_name("vgpuctl"))
        found = named or (beside if os.access(beside, os.X_OK) else shutil.which("vgpuctl"))
        if found is None:
            raise AnsibleParserError("there is no command vgpuctl here; name it with the option 'program'")
        return found
