# SPDX-License-Identifier: Apache-2.0
"""What each page needs before its commands can be typed, and which of them cannot be typed here, with the reason.

A word of a page that stands for something of the reader's (a path, an address) is another one here. Each page has
a tenant of its own, called as the page is, and where it says ``research`` another one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

DEBIAN_ROOT: Final = "changes the machine; what it installs is tried on bare roots by tests/packages"
REAL_HOST: Final = "a GPU host answers there; tests/lab types it"
REAL_GUEST: Final = "a guest with an SSH server answers there; tests/lab logs in to one"
OTHER_MACHINE: Final = "another machine"
LOOKS_AT_HOST: Final = "looks at a GPU host's kernel"
NOT_HERE: Final = "a program that is not among what this tree is developed with"
SERVES: Final = "serves until it is ended; the server of these tests is one"
SEVERAL: Final = "joins a PostgreSQL database; tests/contract/engine/test_several_controllers.py types it"

LOCK: Final = "schema_version: 1\nsite: {host_driver: 580.95.02}\n"
GONE_HOSTS: Final = 3
"""Whatever else is there: two hosts are gone for ever."""
ADD: Final = "vgpuctl driver bundle add {0}.run --signature {0}.run.asc --key site-key.asc"
GUEST_DRIVER: Final = "NVIDIA-Linux-x86_64-580.65.06-grid"
KVM: Final = "NVIDIA-Linux-x86_64-{}-vgpu-kvm"
DRIVERS_ADDED: Final = tuple(ADD.format(KVM.format(number)) for number in ("580.65.05", "580.82.02", "580.95.02"))


@dataclass(frozen=True)
class Page:
    """``words``: of the page → what is typed instead, with ``{here}``, ``{site}`` and the like filled in.
    ``shown``: names of files → the number of the block that shows one; ``files``: names → what lies in them.
    ``before``, ``after``: typed by somebody else.
    ``elsewhere``: how a line begins → why it is not typed.
    ``exits``: how a line begins → its exit code, where that is not 0. ``says``: what a script must print.
    ``alone``: it has a server of its own, which commands start. ``script``: it is typed into one shell.
    ``typed_by``: the tests that type it, where these do not."""

    words: dict[str, str] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    elsewhere: dict[str, str] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    alone: bool = False
    script: bool = False
    over_tls: bool = False
    typed_by: str = ""


_OWN_MACHINE: Final = {"/var/lib/vgpuctl": "{state}", "/backup/": "{here}/"}

TABLE: Final[dict[str, Page]] = {
    "README.md": Page(
        elsewhere={
            "make ": "the demo of tests/lab and the tests themselves",
            "vgpuctl host add": REAL_HOST,
            "vgpuctl image add": "the image is the reader's own",
            "vgpuctl create-vm train": REAL_HOST,
            "vgpuctl ssh": REAL_GUEST,
        },
    ),
    "docs/howto/use-the-page.md": Page(words={"vgpuctl web": "vgpuctl web --no-open"}),
    "docs/howto/a-host-died.md": Page(
        words={
            "host forget gpu-7": "host forget gpu-7 --confirm gpu-7",
            "host evacuate gpu-7 --fenced-by-hand": "host evacuate gpu-7 --fenced-by-hand --confirm gpu-7",
        }
    ),
    "docs/howto/watch-events.md": Page(script=True, says=("tenant ",)),
    "docs/howto/add-an-offering.md": Page(shown={"site.yaml": 0}),
    "docs/howto/adopt-a-vm.md": Page(
        exits={"vgpuctl doctor": GONE_HOSTS},
        elsewhere={"vgpuctl adopt-vm": "wants a domain that somebody else made; tests/operations adopts one"},
    ),
    "docs/howto/alerts.md": Page(
        words={"/etc/prometheus/rules": "{here}", "/var/lib/grafana/dashboards": "{here}"},
    ),
    "docs/howto/ansible-inventory.md": Page(
        words={"$PWD/collections": "{root}/collections", "inventory/": "{root}/inventory/"},
        script=True,
        elsewhere={"ansible -i": REAL_GUEST},
    ),
    "docs/howto/ansible-modules.md": Page(
        words={"$PWD/collections": "{root}/collections"}, shown={"site.yml": 0}, script=True
    ),
    "docs/howto/api-with-curl.md": Page(
        script=True, says=('"actor":"uid:', '"name":"notebook"', '"code":"vm.unknown"', " 404\n")
    ),
    "docs/howto/back-up.md": Page(
        words={**_OWN_MACHINE, "age1…": "{recipient}", "/tmp/drill": "{here}/drill"},
        before=("vgpuctl list-vms",),
        alone=True,
        elsewhere={
            "age-keygen": NOT_HERE,
            "vgpuctl server settle-restored --remove": "wants something newer; tests/contract/backup removes it",
        },
    ),
    "docs/howto/defragment.md": Page(
        elsewhere={
            "vgpuctl gpu defragment --max-moves": "VMs lie apart; tests/operations/test_defragmenting.py has such"
        }
    ),
    "docs/howto/describe-in-a-file.md": Page(
        words={"/srv/images/debian-13.qcow2": "{files}/debian-13.raw", "t4-quarter": "t4-quarter-of-file"},
        shown={"site.yaml": 0},
        after=("vgpuctl network remove office",),
        exits={"vgpuctl plan": 3, "vgpuctl diff": 3},
    ),
    "docs/howto/driver-bundles.md": Page(elsewhere={"gpg": NOT_HERE}),
    "docs/howto/enrol-a-host.md": Page(elsewhere={"ssh-keygen": REAL_HOST, "vgpuctl host add": REAL_HOST}),
    "docs/howto/firmware.md": Page(
        elsewhere={
            "ls /sys": LOOKS_AT_HOST,
            "cat /sys": LOOKS_AT_HOST,
            "dmesg": LOOKS_AT_HOST,
            "vgpuctl host check": REAL_HOST,
        },
    ),
    "docs/howto/cards-were-moved.md": Page(
        before=("vgpuctl create-vm train -p t4-2q",),
        exits={"vgpuctl doctor": GONE_HOSTS},
        elsewhere=dict.fromkeys(
            (f"vgpuctl health {word} gpu-1 41:00.4" for word in ("quarantine", "empty", "return")),
            "the GPU of these tests has no virtual functions; tests/operations/test_ill_functions.py closes one",
        ),
    ),
    "docs/howto/give-up-a-host.md": Page(
        words={"gpu-7": "gpu-8", "host forget gpu-7": "host forget gpu-8 --confirm gpu-8"}
    ),
    "docs/howto/import-an-inventory.md": Page(
        words={"inventory/example": "{root}/inventory/example"},
        elsewhere={"vgpuctl host import -i inventory/example": REAL_HOST},
    ),
    "docs/howto/keep-data.md": Page(
        elsewhere={"vgpuctl tenant key revoke": "it asks whether to destroy the key"},
        after=("vgpuctl delete-vm second --yes",),
    ),
    "docs/howto/keep-mig-layouts.md": Page(
        words={"gpu-1": "a100-0"},
        shown={"config.yaml": 0},
        exits={"vgpuctl mig plan": 3},
        after=("vgpuctl mig release a100-0",),
    ),
    "docs/howto/lock-drivers.md": Page(
        words={"0f4b…": "{digest}"},
        before=DRIVERS_ADDED,
        shown={"drivers.lock.yaml": 0},
        exits={"vgpuctl driver check --host": 0, "vgpuctl driver check": 3},
    ),
    "docs/howto/kubernetes-nodes.md": Page(
        files={"bootstrap.conf": "kind: Config\n", "kubelet.yaml": "kind: KubeletConfiguration\n"},
        before=(ADD.format(GUEST_DRIVER), "vgpuctl create-vm train -p t4-2q"),
    ),
    "docs/howto/log-in.md": Page(
        elsewhere={"vgpuctl login": "an identity provider; tests/unit/cli/test_login.py has one"}
    ),
    "docs/howto/logs.md": Page(elsewhere={"journalctl": "a server that systemd runs"}),
    "docs/howto/network-functions.md": Page(
        elsewhere={
            "echo 8": LOOKS_AT_HOST,
            "vgpuctl host set gpu-1 --rdma-nics": "wants a card; tests/simulated/test_network_functions.py gives one",
            "vgpuctl explain": "the same",
            "vgpuctl create-vm": "the same",
        }
    ),
    "docs/howto/networks-over-all-hosts.md": Page(
        elsewhere={
            "export": "is for the next lines",
            "ansible-playbook": "changes machines; tests/playbooks/test_ovn_roles.py runs it on the files of some",
            "systemctl": "stops a service of another machine; tests/lab/test_networks.py does it",
            "vgpuctl host set gpu-1 gpu-2 --label ovn": "is for the next line",
            "vgpuctl host provision gpu-1 gpu-2": "a site with OVN; tests/operations/test_provisioning.py has one",
            "vgpuctl network add outside": "a site with OVN; tests/contract/test_ways_out.py has one",
            "vgpuctl network create green": "the same",
            "vgpuctl network address": "the same",
            "vgpuctl network set": "the same",
            "vgpuctl network flows": "tests/contract/test_flow_logs.py has one",
            "vgpuctl network create blue": "a site with OVN; tests/contract/test_ovn_networks.py has one",
            "vgpuctl network convert": "the same; tests/contract/test_ovn_convert.py does it",
            "vgpuctl create-vm": "the same",
        }
    ),
    "docs/howto/pin-cpus.md": Page(after=("vgpuctl host set gpu-1 --pinnable-cpus none",)),
    "docs/howto/plan-capacity.md": Page(shown={"fleet.yaml": 0, "requests.csv": 1}),
    "docs/howto/prepare-hosts.md": Page(
        elsewhere={
            "export": "is for the next lines",
            "ansible-playbook": "changes a host; tests/playbooks runs it on the files of one",
        }
    ),
    "docs/howto/provision-guests.md": Page(
        files={"client_configuration_token.tok": "a.b.c"},
        before=(ADD.format(GUEST_DRIVER), "vgpuctl create-vm train -p t4-2q"),
    ),
    "docs/howto/provision-hosts.md": Page(files={"drivers.lock.yaml": LOCK}, before=DRIVERS_ADDED),
    "docs/howto/python-client.md": Page(
        script=True,
        says=("running GRID T4-4Q\n", "\nvm.unknown - ", "['a1', 'a2', 'a3', 'notebook']\n"),
    ),
    "docs/howto/reach-vms.md": Page(
        before=("vgpuctl create-vm train --profile t4-2q",),
        elsewhere={
            "vgpuctl ssh": REAL_GUEST,
            "vgpuctl vnc": "waits for a viewer; tests/contract/api has one",
            "ssh ": REAL_GUEST,
            "scp ": REAL_GUEST,
            "rsync ": REAL_GUEST,
        },
    ),
    "docs/howto/resize-a-vm.md": Page(before=("vgpuctl create-vm train -p t4-2q",)),
    "docs/howto/run-a-server.md": Page(
        words={
            "/run/vgpuctl": "{site}",
            "https://pool.example.org:8443": "{url}",
            "pool.pem": "{files}/pool.pem",
            "~/.config/vgpuctl/pool.token": "pool.token",
            "~/.config/vgpuctl/new.token": "pool.token",
        },
        before=("vgpuctl token create --tenant run-a-server --save pool.token",),
        elsewhere={
            "useradd": DEBIAN_ROOT,
            "install": DEBIAN_ROOT,
            "systemctl": DEBIAN_ROOT,
            "groupadd": DEBIAN_ROOT,
            "usermod": DEBIAN_ROOT,
            "vgpuctl serve": SERVES,
            "VGPUCTL_CONTEXT=pool vgpuctl ssh": REAL_GUEST,
        },
    ),
    "docs/howto/several-controllers.md": Page(
        elsewhere={
            "createuser": "a PostgreSQL of the site's",
            "createdb": "a PostgreSQL of the site's",
            "vgpuctl server invite": SEVERAL,
            "vgpuctl server join": SEVERAL,
            "systemctl": DEBIAN_ROOT,
        },
    ),
    "docs/howto/security-groups.md": Page(
        elsewhere={
            "vgpuctl security-group apply": "wants a network of OVN",
            "vgpuctl security-group withdraw": "the same",
            "vgpuctl network explain": "the same",
        }
    ),
    "docs/howto/back-up-vms.md": Page(
        words={"BACKUP": "{backup}", "01:00-05:00": "{hours}"},
        before=("vgpuctl volume create data --size 1G", "vgpuctl create-vm train -p t4-2q --volume data"),
        after=(
            "vgpuctl backup policy delete nightly --yes",
            "vgpuctl delete-vm train twin --yes",
            "vgpuctl volume delete data --yes",
            "vgpuctl volume delete data-of-yesterday --yes",
            "vgpuctl backup target delete nas --yes",
        ),
        elsewhere={
            "vgpuctl backup target create s3": "with two targets the page's backups would have to name theirs",
            "vgpuctl backup target set s3": "the same",
            "vgpuctl backup target create nas --secret-file": "the site has that target already",
            "vgpuctl backup target import": "it has made all of the target's backups",
            "umask": "hosts in memory have no repository",
            "python3": "the same",
            "restic": "the same",
        },
    ),
    "docs/howto/snapshots.md": Page(
        before=("vgpuctl volume create data --size 1G", "vgpuctl create-vm train -p t4-2q --volume data"),
        after=(
            "vgpuctl delete-vm train --yes",
            "vgpuctl delete-vm twin --yes",
            "vgpuctl delete-vm worker --yes",
            "vgpuctl image remove trained --tenant snapshots --yes",
            "vgpuctl volume delete twin --yes",
            "vgpuctl volume delete data --yes",
            "vgpuctl volume delete tables --yes",
        ),
    ),
    "docs/howto/share-disks.md": Page(
        exits={"vgpuctl doctor": GONE_HOSTS},
        after=(
            "vgpuctl delete-vm train --yes",
            "vgpuctl volume delete data --yes",
            "vgpuctl volume delete logs-fast --yes",
        ),
    ),
    "docs/howto/share-between-tenants.md": Page(
        words={"2026-12-01T10:00Z": "{soon}"},
        before=("vgpuctl tenant create lab-a",),
        after=("vgpuctl quota set '*' devices=none framebuffer=none",),
    ),
    "docs/howto/stuck-operations.md": Page(words={"ID": "{operation}", "HOST": "gpu-1"}),
    "docs/howto/try-without-hardware.md": Page(
        exits={"vgpuctl doctor": GONE_HOSTS},
        elsewhere={"export VGPUCTL_STATE": SERVES, "vgpuctl serve --simulate": SERVES},
    ),
    "docs/howto/upgrade-and-uninstall.md": Page(
        words={
            **_OWN_MACHINE,
            "systemctl stop vgpuctl": "vgpuctl server stop",
            "systemctl start vgpuctl": "vgpuctl server status",
        },
        before=("vgpuctl list-vms",),
        alone=True,
        elsewhere={
            "apt ": DEBIAN_ROOT,
            "systemctl status": DEBIAN_ROOT,
            "man ": DEBIAN_ROOT,
            "pipx ": DEBIAN_ROOT,
            "python3 -m venv": DEBIAN_ROOT,
            "/opt/": DEBIAN_ROOT,
            "ln ": DEBIAN_ROOT,
            "systemctl disable": DEBIAN_ROOT,
            "rm ": DEBIAN_ROOT,
            "vgpuctl delete-vm": REAL_HOST,
            "vgpuctl host remove": REAL_HOST,
        },
    ),
    "docs/howto/cap-power.md": Page(
        words={"gpu-1": "a100-0", "41:00.0 500": "41:00.0 300"}, after=("vgpuctl power budget none --site",)
    ),
    "docs/howto/drain-a-host.md": Page(),
    "docs/howto/upgrade-drivers.md": Page(
        files={"drivers.lock.yaml": LOCK},
        exits={"vgpuctl driver check": 3},
        before=(*DRIVERS_ADDED, "vgpuctl driver lock apply drivers.lock.yaml"),
        words={"--to 580.95.02": "--to 580.95.02 --hosts gpu-3,gpu-4"},
    ),
    "docs/howto/when-vms-stop-for-upgrades.md": Page(),
    "docs/howto/where-a-vm-may-move.md": Page(),
    "docs/howto/you-got-a-token.md": Page(
        words={"https://pool.example.org:8443": "{url}"},
        before=("vgpuctl token create --tenant you-got-a-token --save pool.token", "cp {files}/pool.pem pool.pem"),
        over_tls=True,
    ),
    "docs/tutorial/three-persons-lab.md": Page(typed_by="tests/lab/test_three_persons.py"),
    "docs/tutorial/three-persons.md": Page(typed_by="tests/session/test_session.py"),
    "docs/tutorial/two-tenants.md": Page(typed_by="tests/lab/test_tutorial.py"),
}
