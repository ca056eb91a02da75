# SPDX-License-Identifier: Apache-2.0
"""How Ansible reaches one host: inventory, pinned host key and an environment free of the user's own settings."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from orchestrator.core.drivers.host_drivers import DriverFile
from orchestrator.core.guest.guest import GUEST_USER, Guest
from orchestrator.core.hosts.host import Host

GROUP = "vgpuctl_hosts"
GUEST = "guest"
"""What every guest is called in its run."""
_PROXY_COMMAND = Path(__file__).with_name("ssh_proxy_command.py")
_FIRST_CONTACT = "ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-512,rsa-sha2-256"
_INHERITED = ("TZ", "TMPDIR")
_CONNECT_TIMEOUT_S = 20
_MASTER_LIVES_S = 15
"""How long ssh keeps the one connection of a play while no task uses it."""


def known_hosts_line(host: Host) -> str:
    """The pinned key as a line of known_hosts; a port other than 22 needs brackets (sshd(8))."""
    name = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
    return f"{name} {host.host_key}\n"


def _key_algorithms(key_type: str) -> str:
    """Signatures a key of this type makes: an RSA key signs with SHA-2 (RFC 8332)."""
    return "rsa-sha2-512,rsa-sha2-256" if key_type == "ssh-rsa" else key_type


def ssh_arguments(host: Host, known_hosts: Path, proxy: Path) -> str:
    """Options for every ssh call to the host behind the unix socket ``proxy``: the pinned key alone is accepted, no
    question is asked, no agent is used."""
    algorithms = _key_algorithms(host.host_key.split()[0])
    return _options(known_hosts, proxy, {"StrictHostKeyChecking": "yes", "HostKeyAlgorithms": algorithms})


def guest_ssh_arguments(guest: Guest, known_hosts: Path, proxy: Path) -> str:
    """The same for a guest. The key that it shows first is written into ``known_hosts``; after that it alone is
    accepted."""
    pinned = guest.host_key
    own = {
        "StrictHostKeyChecking": "accept-new" if pinned is None else "yes",
        "HostKeyAlgorithms": _FIRST_CONTACT if pinned is None else _key_algorithms(pinned.split()[0]),
        "HostKeyAlias": GUEST,
    }
    return _options(known_hosts, proxy, own)


def _options(known_hosts: Path, proxy: Path, own: dict[str, str]) -> str:
    through = [sys.executable, "-I", "-S", str(_PROXY_COMMAND), str(proxy)]
    options = {
        **own,
        "ProxyCommand": shlex.join(through).replace("%", "%%"),
        "ProxyUseFdpass": "yes",
        "Compression": "no",
        "BatchMode": "yes",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "ForwardAgent": "no",
        "ControlMaster": "auto",
        "ControlPersist": f"{_MASTER_LIVES_S}s",
        "ControlPath": str(proxy.with_name("%C")),
        "ServerAliveInterval": "15",
    }
    return shlex.join(
        ["-F", "/dev/null", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    )


def inventory(name: str) -> dict[str, object]:
    """One machine, of which nothing stands here: what is in an inventory, an answer could take the place of."""
    return {GROUP: {"hosts": {name: {}}}}


def reach_host(host: Host, key_file: Path, ssh: str) -> dict[str, object]:
    """Ansible's variables of the way to a host. They name the key file and never hold a key."""
    port = {"ansible_port": host.port}
    return _reach(host.address, host.provisioning_user, key_file, ssh, become=host.provisioning_user != "root") | port


def reach_guest(key_file: Path, user: str, ssh: str) -> dict[str, object]:
    """The same of a guest. What a tenant calls it is not among them."""
    return _reach(GUEST, user, key_file, ssh, become=user == GUEST_USER)


def _reach(address: str, user: str, key_file: Path, ssh: str, *, become: bool) -> dict[str, object]:
    return {
        "ansible_connection": "ansible.builtin.ssh",
        "ansible_host": address,
        "ansible_user": user,
        "ansible_ssh_private_key_file": str(key_file),
        "ansible_ssh_args": ssh,
        "ansible_become": become,
        "ansible_python_interpreter": "/usr/bin/python3",
    }


def bundle_variables(file: DriverFile) -> dict[str, str]:
    """A bundle as the role that installs it takes it."""
    names = ("path", "sha256", "version", "format", "package")
    return {name: getattr(file, name) for name in names}


def environment(scratch: Path, config: Path) -> dict[str, str]:
    """The whole environment of ansible-playbook, so that no variable of the user and no other ansible.cfg has a say."""
    beside_python = str(Path(sys.executable).parent)
    pinned = {
        "PATH": os.pathsep.join((beside_python, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")),
        "HOME": str(scratch),
        "PYTHONNOUSERSITE": "1",
        "PYTHONSAFEPATH": "1",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_HOME": str(scratch / "ansible"),
        "ANSIBLE_LOCAL_TEMP": str(scratch / "ansible/tmp"),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_TIMEOUT": str(_CONNECT_TIMEOUT_S),
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
        "ANSIBLE_CALLBACK_PLUGINS": "",
    }
    return {**{name: os.environ[name] for name in _INHERITED if name in os.environ}, **pinned}
