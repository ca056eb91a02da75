# SPDX-License-Identifier: Apache-2.0
"""What modules on hosts returned of readiness and reboots, believed only as far as its shape goes."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.core.drivers.host_drivers import DueReboot
from orchestrator.core.errors import Unknown
from orchestrator.core.hosts.features import HostFeature
from orchestrator.core.hosts.readiness import HostGpuFact, HostReadinessFacts

Text = Annotated[str, Field(max_length=4096)]
MAX_GPUS: Final = 64


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Gpu(_Answer):
    address: Annotated[str, Field(max_length=20)]
    driver: Text | None
    iommu_group: bool
    takes_types: bool


class _Python(_Answer):
    version: Annotated[tuple[int, ...], Field(max_length=2)]
    libvirt: bool


class _Readiness(_Answer):
    os: Text
    os_id: Text
    kernel: Text
    architecture: Text
    command_line: Text
    amd: bool
    iommu_groups: int
    modules: Annotated[tuple[Text, ...], Field(max_length=64)]
    kvm: bool
    systemd: bool
    libvirt_listens: bool
    libvirt: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    qemu: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    python: _Python
    driver: Text | None
    headers: bool
    secure_boot: bool | None
    confinement: Text | None
    features: tuple[HostFeature, ...]
    gpus: Annotated[tuple[_Gpu, ...], Field(max_length=MAX_GPUS)]
    storage_free_bytes: Annotated[int, Field(ge=0, le=2**62)]
    nvswitches: bool
    fabric_manager: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    dcgm: Annotated[str, Field(pattern=r"^[0-9.]{1,40}$")] | None
    huge_pages_2m: Annotated[int, Field(ge=0, le=2**40)]
    huge_pages_1g: Annotated[int, Field(ge=0, le=2**40)]
    large_pages_mounted: bool


def facts_of(returned: object, host: str) -> HostReadinessFacts:
    """:raises Unknown: ``host.check_failed``"""
    try:
        readiness = _Readiness.model_validate(returned)
    except ValidationError as error:
        raise Unknown(
            "host.check_failed",
            f"{host} did not say what it has",
            details=str(error)[:2000],
            hint="nothing was changed; check it again, and look at ansible/NAME.log in the state directory",
        ) from error
    values = readiness.model_dump(exclude={"python", "gpus"})
    return HostReadinessFacts(
        **values,
        python=readiness.python.version,
        python_libvirt=readiness.python.libvirt,
        gpus=tuple(HostGpuFact(**gpu.model_dump()) for gpu in readiness.gpus),
    )


MAX_WORDS: Final = 400


def due_reboot_of(returned: object, host: str) -> DueReboot | None:
    """``returned``: what the module returned; None: the host does not reboot.

    :raises Unknown: ``host.provisioning_unknown``: it is something else
    """
    if returned is None:
        return None
    why, boot_id = (returned.get("why"), returned.get("boot_id")) if isinstance(returned, dict) else (None, None)
    if not isinstance(why, str) or not isinstance(boot_id, str) or not boot_id:
        raise Unknown("host.provisioning_unknown", f"{host} said of its reboot what nobody knows")
    return DueReboot(why=" ".join(why.split())[:MAX_WORDS], boot_id=boot_id[:MAX_WORDS])
