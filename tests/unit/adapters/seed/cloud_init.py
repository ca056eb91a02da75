# SPDX-License-Identifier: Apache-2.0
"""What cloud-init makes of seeds, in a process of the system's own Python, which has Debian's cloud-init package.

Input: one JSON object with ``directory``, which is empty, and ``seeds``: {case: {file name: text}}. Output: for each
case the keys of its users, the merged cloud-config, scripts in the order in which they would run, and the files that
each renderer writes, by path. Nothing outside of the directory is written.
"""

from __future__ import annotations

import copy
import inspect
import json
import logging
import sys
from pathlib import Path
from typing import Any

import cloudinit.net
from cloudinit import distros, helpers, ssh_util, stages
from cloudinit.config import cc_ssh
from cloudinit.net import networkd, renderers
from cloudinit.net.network_state import parse_net_config_data

CONFIG = {
    "datasource_list": ["NoCloud"],
    "datasource": {"NoCloud": {"fs_label": None}},
    "users": ["default"],
    "vendor_data": {"enabled": True},
    "ssh_deletekeys": False,
    "ssh_genkeytypes": [],
    "ssh_publish_hostkeys": {"enabled": False},
}
"""As /etc/cloud/cloud.cfg, but that no keys of this machine are touched."""
RENDERERS: dict[str, dict[str, Any]] = {
    "netplan": {"netplan_path": "etc/netplan/50-cloud-init.yaml", "postcmds": False},
    "network-manager": {},
    "sysconfig": dict(distros.fetch("rhel").renderer_configs["sysconfig"]),
    "eni": {"eni_path": "etc/network/interfaces"},
}
"""With what distributions set."""
CARDS = ("enp1s0", "enp2s0", "enp9s0f0v1")
"""What the guest calls them, by their order in the seed."""


def boot(root: Path, files: dict[str, str]) -> Any:
    """Its first boot up to where modules run, with a configuration and directories of its own in place of this
    machine's."""
    seed = root / "cloud/seed/nocloud"
    seed.mkdir(parents=True)
    for name, text in files.items():
        (seed / name).write_bytes(text.encode())
    paths = {"cloud_dir": str(root / "cloud"), "run_dir": str(root / "run")}
    system = {"distro": "debian", "default_user": {"name": "debian"}, "paths": paths}
    guest = stages.Init()

    def configuration(_more: object) -> Any:
        base = copy.deepcopy({**CONFIG, "system_info": system})
        return helpers.ConfigMerger(helpers.Paths(paths, guest.datasource), guest.datasource, base_cfg=base).cfg

    guest._read_cfg = configuration
    guest.initialize()
    guest.fetch(existing="trust")
    guest.instancify()
    guest.update()
    guest.consume_data("always")
    return guest


def keys(guest: Any, config: dict[str, Any]) -> dict[str, list[str]]:
    """User → keys, as the module ``ssh`` writes them."""
    written: dict[str, list[str]] = {}
    setup, ssh_util.setup_user_keys = (
        ssh_util.setup_user_keys,
        lambda keys, username, **_options: written.update({username: sorted(keys)}),
    )
    try:
        takes = inspect.signature(cc_ssh.handle).parameters  # a log until release 23.2
        log = [logging.getLogger()] if "log" in takes else []
        cc_ssh.handle("ssh", copy.deepcopy(config), guest.cloudify(), *log, [])
    finally:
        ssh_util.setup_user_keys = setup
    return written


def scripts(guest: Any, kind: str) -> list[str]:
    directory = Path(guest.paths.get_ipath_cur(kind))
    return [path.read_text() for path in sorted(directory.glob("*")) if path.is_file()]


def rendered(root: Path, config: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Renderer → {path: text} in a guest that has the cards."""
    sysfs = root / "sys"
    for number, entry in enumerate(config["ethernets"].values()):
        card = sysfs / CARDS[number]
        card.mkdir(parents=True)
        for name, text in {"address": entry["match"]["macaddress"], "addr_assign_type": "0", "type": "1"}.items():
            (card / name).write_text(f"{text}\n")
    cloudinit.net.SYS_CLASS_NET = f"{sysfs}/"
    state = parse_net_config_data(config)
    if state is None:
        raise ValueError("cloud-init makes nothing of the network-config")
    files = {"networkd": dict(networkd.Renderer()._render_content(state))}  # as root alone it writes them
    for name, settings in RENDERERS.items():
        target = root / "rendered" / name
        renderers.NAME_TO_RENDERER[name].Renderer(dict(settings)).render_network_state(state, target=str(target))
        paths = [path for path in sorted(target.rglob("*")) if path.is_file()]
        files[name] = {str(path.relative_to(target)): path.read_text() for path in paths}
    return files


def answer(root: Path, files: dict[str, str]) -> dict[str, Any]:
    guest = boot(root, files)
    config = guest.cfg
    return {
        "keys": keys(guest, config),
        "config": config,
        "hostname": str(guest.cloudify().get_hostname().hostname),
        "scripts": scripts(guest, "scripts"),
        "vendor_scripts": scripts(guest, "vendor_scripts"),
        "network": rendered(root, dict(guest.datasource.network_config)),
    }


def main() -> None:
    asked = json.load(sys.stdin)
    directory = Path(asked["directory"])
    found = {name: answer(directory / name, files) for name, files in asked["seeds"].items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
