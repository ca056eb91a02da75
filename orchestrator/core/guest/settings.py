# SPDX-License-Identifier: Apache-2.0
"""What can be put into a guest by ``vm provision``: roles, and what can be said to them: settings, which have types,
and secrets, which are only handed on.

A value reaches Ansible as a number or as one of the words here, so nothing that a tenant writes can be a template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import near

ROLES: Final[dict[str, str]] = {
    "guest_driver": "NVIDIA's driver, in the version that goes with the host's",
    "guest_cuda": "The CUDA toolkit, in the locked version or the newest that goes with the driver; locked cuDNN",
    "guest_container_toolkit": "Docker with NVIDIA Container Toolkit, and a CDI specification of the GPUs",
    "guest_licence": "NVIDIA's licence token, and the service that fetches the licence",
    "guest_mps": "NVIDIA's Multi-Process Service with limits for each client",
    "guest_time_slice": "How long a program keeps a GPU before the next one has it",
    "guest_exporter": "DCGM's exporter of readings, for Prometheus",
    "guest_slurm_node": "slurmd with the guest's GPUs, as a node of your Slurm cluster",
    "guest_k8s_node": "containerd, kubelet and NVIDIA's device plugin, as a node of your Kubernetes cluster",
    "guest_check": "Driver, nvidia-smi and CUDA answer in the guest",
}
"""By name, in the order in which they are run: what each does."""


def check_roles(names: Sequence[str]) -> tuple[str, ...]:
    """The roles, each once and in their order.

    :raises InvalidInput: ``guest.role_unknown``, ``guest.no_roles``
    """
    for name in names:
        if name not in ROLES:
            raise InvalidInput(
                "guest.role_unknown",
                f"there is no role {ascii(name)[:60]}",
                hint=near(name, ROLES, "vgpuctl vm provision --help"),
            )
    if not names:
        raise InvalidInput("guest.no_roles", "no role was given", hint=f"give some of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in names)


MAX_SECRET_BYTES: Final = 64 * 1024
MAX_SETTINGS: Final = 32

SettingValue = int | str


@dataclass(frozen=True, kw_only=True)
class GuestSetting:
    """Of one role: a number from ``minimum`` to ``maximum``, or one of ``words``."""

    role: str
    what: str
    minimum: int = 0
    maximum: int = 0
    words: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        return " or ".join(self.words) if self.words else f"{self.minimum} to {self.maximum}"

    def parsed(self, value: SettingValue) -> SettingValue | None:
        """The value in its type; None: it is none."""
        if self.words:
            return value if value in self.words else None
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) <= 9) or isinstance(value, bool):
            return None
        return int(text) if self.minimum <= int(text) <= self.maximum else None


SETTINGS: Final[dict[str, GuestSetting]] = {
    "licence_feature": GuestSetting(
        role="guest_licence", what="Which licence the guest asks for", words=("auto", "vgpu", "vws", "compute")
    ),
    "mps_thread_percentage": GuestSetting(
        role="guest_mps", what="Share of a GPU's threads that one client of MPS has", minimum=1, maximum=100
    ),
    "mps_memory_mib": GuestSetting(
        role="guest_mps", what="GPU memory that one client of MPS has on each device", minimum=1, maximum=1048576
    ),
    "time_slice_length": GuestSetting(
        role="guest_time_slice",
        what="How long a program keeps a GPU before the next one has it",
        words=("default", "short", "medium", "long"),
    ),
    "exporter_port": GuestSetting(
        role="guest_exporter", what="TCP port where readings can be fetched", minimum=1024, maximum=65535
    ),
    "k8s_node_gpu_replicas": GuestSetting(
        role="guest_k8s_node", what="How many pods share the time of each GPU", minimum=1, maximum=64
    ),
    "k8s_node_mig_strategy": GuestSetting(
        role="guest_k8s_node",
        what="How the device plugin offers GPUs that are cut inside the guest",
        words=("none", "single", "mixed"),
    ),
}
"""By name: ``--var NAME=VALUE``. The role has it as variable ``vgpuctl_guest_NAME``."""

SECRETS: Final[dict[str, str]] = {
    "licence_token": "guest_licence",
    "slurm_node_conf": "guest_slurm_node",
    "slurm_node_munge_key": "guest_slurm_node",
    "k8s_node_bootstrap": "guest_k8s_node",
    "k8s_node_kubelet_config": "guest_k8s_node",
}
"""By name: whose secret it is. The role has it as a file, whose path is ``vgpuctl_guest_NAME_file``."""


def check_settings(roles: Sequence[str], settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """In their types.

    :raises InvalidInput: ``guest.setting_unknown``, ``guest.setting_unused``, ``guest.setting_invalid``
    """
    checked: dict[str, SettingValue] = {}
    for name, value in settings.items():
        known = SETTINGS.get(name)
        if known is None:
            hint = near(name, SETTINGS, "vgpuctl vm provision --help")
            raise InvalidInput("guest.setting_unknown", f"roles have no setting {ascii(name)[:60]}", hint=hint)
        _check_used(name, known.role, roles)
        parsed = known.parsed(value)
        if parsed is None:
            problem = f"{name} cannot be {ascii(value)[:60]}"
            raise InvalidInput("guest.setting_invalid", problem, hint=f"{known.what}: {known.allowed}")
        checked[name] = parsed
    return checked


def check_secrets(roles: Sequence[str], secrets: Mapping[str, str]) -> dict[str, str]:
    """As they are.

    :raises InvalidInput: ``guest.secret_unknown``, ``guest.setting_unused``, ``guest.secret_invalid``
    """
    for name, text in secrets.items():
        if name not in SECRETS:
            hint = near(name, SECRETS, "vgpuctl vm provision --help")
            raise InvalidInput("guest.secret_unknown", f"roles have no secret {ascii(name)[:60]}", hint=hint)
        _check_used(name, SECRETS[name], roles)
        if not text.strip() or "\0" in text or len(text.encode()) > MAX_SECRET_BYTES:
            raise InvalidInput(
                "guest.secret_invalid",
                f"{name} is empty, no text or over {MAX_SECRET_BYTES} bytes",
                hint="a licence token as NVIDIA's portal has made it; a munge key in base64; a kubeconfig",
            )
    return dict(secrets)


def check_token_given(roles: Sequence[str], secrets: Mapping[str, str], stored: Sequence[str] = ()) -> None:
    """``stored``: roles that have run in the guest before and hold their secrets.

    :raises InvalidInput: ``guest.secret_missing``
    """
    for name, role in SECRETS.items():
        if role in roles and name not in secrets and role not in stored:
            raise InvalidInput(
                "guest.secret_missing",
                f"role {role} needs {name}",
                hint="give it with --licence-token FILE"
                if name == "licence_token"
                else f"give it with --secret-file {name}=FILE",
            )


def _check_used(name: str, role: str, roles: Sequence[str]) -> None:
    if role not in roles:
        problem = f"{name} is of role {role}, which is not run"
        raise InvalidInput("guest.setting_unused", problem, hint=f"name {role} too, or leave it out")
