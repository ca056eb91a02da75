# SPDX-License-Identifier: Apache-2.0
"""What is NVIDIA's in a lab host: module, library and stand-ins, built with the image's own compiler.

Kept by the hash of its sources; a change costs seconds and leaves the base image alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.commands import run
from lab.image.base import Base
from lab.image.fingerprint import fingerprint, inputs
from lab.requirements import require_root

SOURCES = ("lab/kernel", "lab/nvml", "lab/tools", "vgpu_profiles/nvidia")
_INSTALLER = "lab/tools/install"
DRIVER = ("updates/nvidia.ko", "libnvidia-ml.so.1", "nvidia/sriov-manage", "bin/nvidia-smi")
"""How the paths end that a driver bundle brings (lab/driver); a host without a driver lacks them."""
# In a mount namespace of its own, so that nothing stays mounted however this ends. The module index of the host is
# made over image and payload together and lands in the payload.
_BUILD = """
set -e
root=$1 part=$2 kver=$3
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
"$part/source/lab/tools/install" "$part/out" "$kver" "$root" "$part/source/vgpu_profiles/nvidia"
mkdir "$part/work" "$part/merged"
mount -t overlay -o "lowerdir=$root,upperdir=$part/out,workdir=$part/work" overlay "$part/merged"
chroot "$part/merged" depmod "$kver"
umount "$part/merged"
rm -rf "$part/work" "$part/merged"
"""


def payload(project: Path, cache: Path, base: Base) -> list[Path]:
    """Trees to lay over a host's root; none while the project has no installer."""
    if not (project / _INSTALLER).exists():
        return []
    key = fingerprint(inputs(*(project / source for source in SOURCES)), base.directory.name)
    done = cache / f"payload-{key}"
    if not done.exists():
        require_root("building the lab's kernel module")
        part = cache / f"payload-{key}.part"
        shutil.rmtree(part, ignore_errors=True)
        for source in SOURCES:
            shutil.copytree(project / source, part / "source" / source)
        (part / "out").mkdir()
        run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _BUILD, "sh",
             base.root, part, base.kernel_version],
            log=part / "build.log",
        )  # fmt: skip
        part.rename(done)
    return [done / "out"]
