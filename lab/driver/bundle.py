# SPDX-License-Identifier: Apache-2.0
"""Writes a ``.run`` file, called and laid out as NVIDIA's are: a script, then what it unpacks. All is the lab's.

Module and library are compiled here by the image's own compiler, as NVIDIA's precompiled interfaces are: an emulated
host would need a quarter of an hour.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from lab.commands import run
from lab.image.base import Base
from lab.requirements import require_root

FAILURES: Final = ("none", "dkms", "load", "version", "vgpu")
"""``dkms``: the module cannot be built. ``load``: it refuses to be loaded. ``version``: it is another one's. ``vgpu``:
no vGPU can be made with it."""
_REFUSALS: Final = {"load": "LOAD", "vgpu": "VGPU"}
"""Failures of the module itself, as its Makefile calls them."""
_TOOLS: Final = ("sriov-manage", "nvidia-smi")
_SOURCES: Final = ("kernel", "nvml")
_INSTALLER: Final = Path(__file__).parent / "installer"
# In a mount namespace of its own, so that nothing stays mounted however this ends.
_BUILD: Final = """
set -e
root=$1 inside=$2 kver=$3 version=$4 refuses=$5
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
chroot "$root" make -s -C "$inside/kernel" KDIR="/lib/modules/$kver/build" DRIVER_VERSION="$version" REFUSES="$refuses"
chroot "$root" make -s -C "$inside/nvml"
chroot "$root" strip -g "$inside/kernel/nvidia.ko"
"""


def write_bundle(project: Path, base: Base, directory: Path, version: str, fails: str = "none") -> Path:
    """The file, in ``directory``."""
    target = f"NVIDIA-Linux-x86_64-{version}-vgpu-kvm"
    script = _INSTALLER.read_text()
    marks = {"@TARGET@": target, "@VERSION@": version, "@KERNEL@": base.kernel_version, "@FAILS@": fails}
    for mark, value in marks.items():
        script = script.replace(mark, value)
    path = directory / f"{target}.run"
    says = "999.1.1" if fails == "version" else version
    path.write_bytes(script.encode() + _archive(project, base, says, _REFUSALS.get(fails, "")))
    path.chmod(0o755)
    return path


def _archive(project: Path, base: Base, version: str, refuses: str) -> bytes:
    require_root("compiling a driver for lab hosts")
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory(dir=base.root / "tmp") as name:
        work = Path(name)
        for source in _SOURCES:
            shutil.copytree(project / "lab" / source, work / source)
        inside = f"/{work.relative_to(base.root)}"
        run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _BUILD, "sh",
             base.root, inside, base.kernel_version, version, refuses],
        )  # fmt: skip
        (work / "version").write_text(f"{version}\n")
        tools = [project / "lab/tools" / name for name in _TOOLS]
        with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as to:
            for file in (work / "kernel/nvidia.ko", work / "nvml/libnvidia-ml.so.1", work / "version", *tools):
                to.add(file, file.name, filter=_plain)
    return packed.getvalue()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = 0
    return member
