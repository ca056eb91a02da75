# SPDX-License-Identifier: Apache-2.0
"""Installs one of several packages from the repositories that a guest or a host has, and never a driver along with it.

Runs there, under any Python that Ansible supports there. What is installed already is left as it is, so a second
run asks no repository.
"""

from __future__ import annotations

import re

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: guest_packages
short_description: Keeps one of several packages installed
description: Fails where no repository there has any of them. A failure begins with its code.
author: vgpuctl
options:
  any_of:
    description: "Packages in the order of liking: name and, where only one release will do, release."
    type: list
    elements: dict
    required: true
  file: {description: A package that was brought, which is installed instead of asking repositories., type: path}
  of: {description: Whose packages they are., type: str, choices: [guest, host], default: guest}
  lock_timeout_s: {description: How long another package manager is waited for., type: int, default: 300}
"""

LONGEST = 300
DRIVER = re.compile(
    r"(libcuda1|libnvidia-(?!container)|nvidia-(driver|kernel|dkms|utils|smi|alternative|compute|open)|cuda-drivers)"
)
"""Packages of NVIDIA's driver. Beside a driver that was installed otherwise they break it."""


class Apt:
    """Debian and Ubuntu."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.get = ["apt-get", "-o", f"DPkg::Lock::Timeout={module.params['lock_timeout_s']}", "-q"]
        self.install = [*self.get, "-y", "--no-install-recommends", "--no-remove", "install"]

    def installed(self, names: list[str]) -> dict[str, str]:
        shown = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\n", *names]
        return dict(re.findall(r"^ii +(\S+) (\S+)$", self.module.run_command(shown)[1], re.MULTILINE))

    def offered(self, names: list[str]) -> dict[str, str]:
        """After the lists were fetched anew."""
        code, out, err = self.module.run_command([*self.get, "update"])
        self.trouble = "" if code == 0 else (err or out).strip()[-LONGEST:]
        found = re.findall(
            r"^(\S+):\n +Installed: .*\n +Candidate: (\d\S*)$",
            self.module.run_command(["apt-cache", "policy", *names])[1],
            re.MULTILINE,
        )
        return dict(found)

    def drivers(self, name: str) -> list[str]:
        """Packages of a driver that would come along."""
        planned = re.findall(r"^Inst (\S+)", self.module.run_command([*self.install, "-s", name])[1], re.MULTILINE)
        return _drivers(planned)


class Dnf:
    """RHEL and its kin."""

    trouble = ""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.install = ["dnf", "-y", "--setopt=install_weak_deps=False", "install"]

    def installed(self, names: list[str]) -> dict[str, str]:
        shown = ["rpm", "-q", "--qf", "%{NAME} %{VERSION}\n", *names]
        return dict(re.findall(r"^(\S+) (\d\S*)$", self.module.run_command(shown)[1], re.MULTILINE))

    def offered(self, names: list[str]) -> dict[str, str]:
        shown = ["dnf", "-q", "repoquery", "--latest-limit=1", "--qf", "%{name} %{version}\n", *names]
        code, out, err = self.module.run_command(shown)
        self.trouble = "" if code == 0 else err.strip()[-LONGEST:]
        return dict(re.findall(r"^(\S+) (\d\S*)$", out, re.MULTILINE))

    def drivers(self, name: str) -> list[str]:
        planned = self.module.run_command([word for word in self.install if word != "-y"] + ["--assumeno", name])[1]
        return _drivers(re.findall(r"^ (\S+) +(?:x86_64|aarch64|noarch) ", planned, re.MULTILINE))


def _drivers(planned: list[str]) -> list[str]:
    return [name for name in planned if DRIVER.match(name) and not name.endswith("-dev")]


def release_of(version: str) -> str:
    """What its maker calls it: ``12.4.1`` of ``12.4.131~12.4.1-2`` and of ``1:12.4.1-1``."""
    found = re.search(r"~(\d[\d.]*)", version) or re.match(r"(?:\d+:)?(\d[\d.]*)", version)
    return found[1] if found else version


def fitting(any_of: list[dict[str, str]], there: dict[str, str]) -> str | None:
    """The first that is there, in its release where that matters."""
    for one in any_of:
        version = there.get(one["name"])
        if version and f"{release_of(version)}.".startswith(f"{one.get('release') or release_of(version)}."):
            return one["name"]
    return None


def _chosen(module: AnsibleModule, packages: Apt | Dnf, names: list[str]) -> tuple[str, str]:
    """What repositories have, and its version."""
    offered, of = packages.offered(names), module.params["of"]
    name = fitting(module.params["any_of"], offered)
    if name is None:
        other = ", ".join(f"{one} {version}" for one, version in offered.items())
        wanted = ", ".join(f"{one['name']} {one.get('release') or ''}".strip() for one in module.params["any_of"][:3])
        more = ", …" if len(module.params["any_of"]) > 3 else ""
        why = f"; they have {other}" if other else f"; {packages.trouble}" if packages.trouble else ""
        module.fail_json(msg=f"[{of}.no_package] no repository of the {of} has {wanted}{more}{why}")
    return name, offered[name]


def _install(module: AnsibleModule, packages: Apt | Dnf, names: list[str]) -> None:
    of = module.params["of"]
    name, version = (module.params["file"], "") if module.params["file"] else _chosen(module, packages, names)
    drivers = packages.drivers(name)
    if drivers:
        what = f"{name} {version}".strip()
        module.fail_json(msg=f"[{of}.brings_driver] {what} would bring another driver: {', '.join(drivers[:5])}")
    if not module.check_mode:
        code, out, err = module.run_command([*packages.install, name])
        if code != 0:
            module.fail_json(msg=f"{name} cannot be installed: {(err or out).strip()[-LONGEST:]}", stderr=err)


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "any_of": {"type": "list", "elements": "dict", "required": True},
            "file": {"type": "path"},
            "of": {"type": "str", "choices": ["guest", "host"], "default": "guest"},
            "lock_timeout_s": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
    packages = Apt(module) if module.get_bin_path("apt-get") else Dnf(module)
    names = sorted({one["name"] for one in module.params["any_of"]})
    there = fitting(module.params["any_of"], packages.installed(names))
    if there is None:
        _install(module, packages, names)
    found = packages.installed(names)
    name = fitting(module.params["any_of"], found)
    module.exit_json(changed=there is None, package=name, version=found.get(name))


if __name__ == "__main__":
    main()
