# SPDX-License-Identifier: Apache-2.0
"""The role that makes a guest a node of Slurm, with Debian's own slurmctld, slurmd and munge. Long: from the archive.

The guest is a bare Debian in a directory. Its daemons run in namespaces of their own, so on a loopback that is theirs
alone, and end with them. The GPUs are device files of the null device: Slurm hands them out and opens none.
"""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest

from orchestrator.adapters.ansible.connection import GUEST
from orchestrator.adapters.ansible.guest_outcome import guest_error_of, results_of
from tests.playbooks.guest_with_packages import PackagedGuest, bare_debian
from tests.playbooks.test_guest_services import SYSTEMCTL

CONF = """\
ClusterName=site
SlurmctldHost=train(127.0.0.1)
SlurmUser=root
StateSaveLocation=/var/lib/slurm/head
SlurmdSpoolDir=/var/lib/slurm/node
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=train NodeAddr=127.0.0.1 CPUs=1 Gres=gpu:2
PartitionName=all Nodes=train Default=YES
"""
TRIED = r"""
set -eu
mount -t proc proc /proc
ip link set lo up
# Slurm binds to the families that a machine has addresses of, where 127.0.0.1 does not count.
ip address add 127.0.0.2/8 dev lo
hostname train
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
echo '127.0.0.1 train' >/etc/hosts
mkdir -p /run/munge /var/lib/slurm/head /var/lib/slurm/node
chown munge: /run/munge
daemons=
log() { tail -n 40 /srv/*.log; }
setpriv --reuid munge --regid munge --clear-groups munged --foreground >/srv/munged.log 2>&1 &
daemons="$daemons $!"
until_it munge -n
slurmctld -D >/srv/slurmctld.log 2>&1 &
daemons="$daemons $!"
slurmd -D >/srv/slurmd.log 2>&1 &
daemons="$daemons $!"
is_idle() { sinfo -h -o %T | grep -qx idle; }
until_it is_idle
say() { echo "::$*"; }
say "$(scontrol -o show node train | grep -o ' Gres=[^ ]*')"
for gpus in 1 2; do
    timeout 240 srun --gres=gpu:"$gpus" env >/srv/job || { log; exit 1; }
    say "$gpus $(grep ^CUDA_VISIBLE_DEVICES= /srv/job)"
done
timeout 240 srun env >/srv/job || { log; exit 1; }
say "none $(grep -c ^CUDA_VISIBLE_DEVICES= /srv/job)"
timeout 240 srun --gres=gpu:3 true 2>/srv/job && exit 1
say "3 $(grep -o 'Requested node configuration is not available' /srv/job)"
"""


@pytest.fixture
def guest(tmp_path: Path) -> PackagedGuest:
    root = tmp_path / "root"
    bare_debian(root, "slurmctld", "slurmd", "slurm-client", "munge", "iproute2")
    made = PackagedGuest.made(
        tmp_path, **{"systemctl": SYSTEMCTL, "dpkg-query": 'exec chroot "$GUEST/root" dpkg-query "$@"'}
    )
    for name in ("munge", "slurmd"):
        made.put(f"units/{name}.service")
    made.put("root/sys/module/nvidia/version", "570.172.08\n")
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, Path("/dev/null").stat().st_rdev)
    made.put("munge.b64", base64.encodebytes(os.urandom(1024)).decode())
    made.put("slurm.conf", CONF)
    # gres.conf names devices as they are seen from outside: inside, that path leads to the same root.
    (root / tmp_path.relative_to("/")).mkdir(parents=True, exist_ok=True)
    (root / root.relative_to("/")).symlink_to("/")
    return made


@pytest.mark.soak
def test_jobs_of_a_real_cluster_get_the_gpus_that_the_role_found(guest: PackagedGuest) -> None:
    root = guest.root / "root"
    said = {
        "vgpuctl_guest_slurm_node_root": str(root),
        "vgpuctl_guest_slurm_node_conf_file": str(guest.root / "slurm.conf"),
        "vgpuctl_guest_slurm_node_munge_key_file": str(guest.root / "munge.b64"),
    }
    first = guest.run("vgpuctl_guest_slurm_node", "first", {**said})
    assert guest_error_of(first, "default/train", GUEST) is None, first.output
    again = guest.run("vgpuctl_guest_slurm_node", "again", {**said})
    assert [one.state for one in results_of(again, at=0.0, operation="o")] == ["ok"], again.output
    assert guest.asked == [], "the packages of Debian are those that the role asks for"

    assert guest.tries(TRIED, 1500) == [
        "Gres=gpu:2", "1 CUDA_VISIBLE_DEVICES=0", "2 CUDA_VISIBLE_DEVICES=0,1", "none 0",
        "3 Requested node configuration is not available",
    ]  # fmt: skip
