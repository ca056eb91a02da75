# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from orchestrator.cli.complete import gpus, hosts, networks, pools, vms, volumes
from orchestrator.cli.picking import names_or_patterns
from orchestrator.cli.scope import note_tenant, noted_tenant, scoped_name
from orchestrator.cli.session import CliSession, session_of
from orchestrator.cli.words import QUOTED_PROFILE
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.gpu.vgpu_type import is_vgpu_type_name
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.hosts.pool import check_pool_name
from orchestrator.core.names import check_name, is_name
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.units import MIB, TIB, parse_size
from orchestrator.core.vms.vm import MAX_VCPUS, disk_bytes, memory_mib
from orchestrator.core.vms.volume import plain_name


def vm_name(ctx: typer.Context, text: str) -> str:
    """``NAME`` or ``TENANT/NAME``, as those of networks and volumes are."""
    return scoped_name(ctx, text, "vm")


def vm_name_if_any(ctx: typer.Context, text: str | None) -> str | None:
    """The same of one that may be left out."""
    return None if text is None else vm_name(ctx, text)


def of_snapshot(what: str) -> Callable[[typer.Context, str | None], str | None]:
    """Of ``NAME/SNAPSHOT`` or ``TENANT/NAME/SNAPSHOT`` the former."""

    def named(ctx: typer.Context, text: str | None) -> str | None:
        source, _, snapshot = (text or "").rpartition("/")
        return f"{scoped_name(ctx, source, what)}/{snapshot}" if "/" in source else text

    return named


def vm_and_snapshot(text: str) -> tuple[str, str]:
    """Of ``VM/SNAPSHOT``. :raises InvalidInput: ``cli.usage``: one of them is missing"""
    vm, _, snapshot = text.partition("/")
    if not (vm and snapshot):
        hint = "write --from-snapshot VM/SNAPSHOT; 'vgpuctl vm snapshot list --help' tells how they are listed"
        raise InvalidInput("cli.usage", "--from-snapshot takes a VM and its snapshot", hint=hint)
    return vm, snapshot


def _volume_names(ctx: typer.Context, texts: list[str] | None) -> list[str] | None:
    """With what follows a name. :raises InvalidInput: ``volume.name_invalid``"""
    named = [(text, plain_name(text)) for text in texts or ()]
    return None if texts is None else [scoped_name(ctx, name, "volume") + text[len(name) :] for text, name in named]


_ADDRESS: Final = ",ip="


def _network_names(ctx: typer.Context, texts: list[str] | None) -> list[str] | None:
    """With what follows a name: ``,ip=ADDRESS``. :raises InvalidInput: ``network.name_invalid``"""
    parts = [text.partition(_ADDRESS) for text in texts or ()]
    names = ["".join((scoped_name(ctx, name, "network"), *more)) for name, *more in parts]
    return None if texts is None else names


def pool_name(text: str | None) -> str | None:
    """Of a pool, checked."""
    return None if text is None else check_pool_name(text)


def tenant_name(text: str) -> str:
    """Of one tenant, checked."""
    return check_name(text, what="tenant")


def _vm_names(ctx: typer.Context, texts: list[str] | None) -> list[str]:
    return names_or_patterns(texts, lambda text: vm_name(ctx, text))


Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME...",
        help="Names of VMs, or TENANT/NAME, or patterns like 'web-*'.",
        autocompletion=vms,
        callback=_vm_names,
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(help="Name of the VM, or TENANT/NAME.", autocompletion=vms, callback=vm_name)]


def _new_names(ctx: typer.Context, texts: list[str]) -> list[str]:
    _check_no_profile(texts)
    return [text if "{n}" in text else vm_name(ctx, text) for text in texts]


def _check_no_profile(texts: Iterable[str]) -> None:
    """:raises InvalidInput: ``cli.usage``: ``-p GRID T4-2Q`` without quotes, whose end is taken for a name"""
    for text in texts:
        if is_vgpu_type_name(f"NVIDIA {text}") and not is_name(text):
            raise InvalidInput("cli.usage", f"{text} is no name of a VM", hint=QUOTED_PROFILE)


NewNames = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Names of the new VMs.", callback=_new_names, show_default=False)
]
NewName = Annotated[str, typer.Argument(help="Name of the new VM.", callback=vm_name)]


def tenant_or_everywhere(text: str) -> str:
    """``*`` is where roles are held that hold everywhere."""
    return text if text == EVERYWHERE else check_name(text, what="tenant")


def tenant_if_named(ctx: typer.Context, text: str | None) -> str | None:
    """For lists, which are of all tenants when none is named, and for what may be nobody's."""
    if text is None:
        return noted_tenant(ctx)
    note_tenant(ctx, check_name(text, what="tenant"))
    return text


def own_tenant(ctx: typer.Context, param: typer.CallbackParam, text: str) -> str:
    """What was named, by a name too; else ``VGPUCTL_TENANT``, the context's, the only one that a token has,
    ``default``."""
    source = ctx.get_parameter_source(param.name or "")
    given = source is None or source.name != "DEFAULT"
    if given and not ctx.resilient_parsing:
        note_tenant(ctx, check_name(text, what="tenant"))
    noted = noted_tenant(ctx)
    if noted is not None:
        return noted
    if given or ctx.resilient_parsing or not isinstance(ctx.find_root().obj, CliSession):
        return check_name(text, what="tenant")
    return session_of(ctx).own_tenant


def own_tenant_or_everywhere(ctx: typer.Context, param: typer.CallbackParam, text: str) -> str:
    """The same where ``*`` may be named."""
    return text if text == EVERYWHERE else own_tenant(ctx, param, text)


Tenant = Annotated[
    str,
    typer.Option(
        "--tenant", help="Whose it is.", callback=own_tenant, show_default="VGPUCTL_TENANT, the context's, yours"
    ),
]
ListTenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.", callback=tenant_if_named)]
AllTenants = Annotated[bool, typer.Option("--all-tenants", "-A", help="Of all that you may know of.")]


def listed_tenant(ctx: typer.Context, tenant: str | None, *, all_tenants: bool) -> str | None:
    """For a list: what was named, else what ``VGPUCTL_TENANT`` or the context says; None: all.

    :raises InvalidInput: ``cli.usage``
    """
    if all_tenants and tenant is not None:
        raise InvalidInput("cli.usage", "--tenant and --all-tenants exclude each other", hint="give one of them")
    return None if all_tenants else tenant or session_of(ctx).chosen_tenant


Host = Annotated[str, typer.Argument(help="Name of the host.", autocompletion=hosts)]
HostOfGpu = Annotated[
    str,
    typer.Argument(metavar="HOST", help="Name of its host; or HOST/ADDRESS, as lists have it.", autocompletion=hosts),
]
AddressOfGpu = Annotated[
    str | None, typer.Argument(metavar="ADDRESS", help="PCI address.", autocompletion=gpus, show_default=False)
]


def gpu_place(host: str, address: str | None) -> tuple[str, str]:
    """Host and PCI address of ``HOST ADDRESS``, in either order, or ``HOST/ADDRESS``.

    :raises InvalidInput: ``cli.usage``, ``pci.address_invalid``"""
    if address is None:
        name, slash, address = host.rpartition("/")
        if not slash:
            raise InvalidInput(
                "cli.usage", "a GPU is a host and a PCI address", hint="write HOST ADDRESS or HOST/ADDRESS"
            )
        return name, parse_pci_address(address)
    if ":" in host and ":" not in address:
        host, address = address, host
    return host, parse_pci_address(address)


OfHost = Annotated[str | None, typer.Option("--host", help="Only those of this host.", autocompletion=hosts)]
OnlyHost = Annotated[str | None, typer.Option("--host", help="Only this host will do.", autocompletion=hosts)]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write it as a picture (SVG), too.")]
OfModel = Annotated[str | None, typer.Option("--model", help="Only those of this model, or with this in its name.")]


Value = TypeVar("Value")


def each_once(texts: Iterable[str], parsed: Callable[[str], tuple[str, Value]]) -> dict[str, Value]:
    """Words ``NAME=VALUE`` as what each sets. :raises InvalidInput: ``cli.usage``: two set the same"""
    values: dict[str, Value] = {}
    for text in texts:
        key, value = parsed(text)
        if key in values:
            name = ascii(text.partition("=")[0])[1:-1]
            raise InvalidInput(
                "cli.usage", f"{name} is given more than once", hint=f"it takes one value: give {name} once"
            )
        values[key] = value
    return values


Label = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Put a label on it; may be repeated.")
]
Description = Annotated[
    str | None, typer.Option("--description", metavar="TEXT", help="What it is for; '' takes it away.")
]
Unlabel = Annotated[list[str] | None, typer.Option("--unlabel", metavar="KEY", help="Take a label away.")]
Sha256 = Annotated[str | None, typer.Option("--sha256", help="What the content must hash to.")]
ServerPath = Annotated[
    bool,
    typer.Option("--server-path", help="The file is one of the server's machine, in its setting file_directories."),
]
Sort = Annotated[
    str | None,
    typer.Option("--sort", metavar="COLUMN", help="Sort by this column; -COLUMN: the other way round; several: a,-b."),
]
Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", metavar="LABELS", help="Only those with these labels: rack=3,!spare."),
]
Volumes = Annotated[
    list[str] | None,
    typer.Option(
        "--volume",
        help="Data volume that it gets; may be repeated. NAME:ro: to read, as several VMs may.",
        autocompletion=volumes,
        callback=_volume_names,
    ),
]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        help="Network of the VM; repeated, of a further network card each. NAME,ip=ADDRESS: its address on one of kind "
        "ovn; with a comma one of IPv4 and one of IPv6.",
        autocompletion=networks,
        callback=_network_names,
    ),
]
Pool = Annotated[
    str | None,
    typer.Option(
        "--pool",
        help="Pool that its disk lies in, or none; else as its profile or tenant says.",
        autocompletion=pools,
        callback=pool_name,
    ),
]
Encrypted = Annotated[
    bool,
    typer.Option("--encrypted", help="Its disk is encrypted on its host, with a key of its own that no host keeps."),
]
Nic = Annotated[
    NicKind | None,
    typer.Option("--nic", help="A virtual function of a network card near its GPU; its profile may have one."),
]
Tpm = Annotated[
    bool | None, typer.Option("--tpm/--no-tpm", help="A TPM 2.0 of its own, or none; else as its profile says.")
]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="ADDRESS", help="Only this GPU will do; 'vgpuctl gpu list' has them.")
]
Vcpus = Annotated[int | None, typer.Option("--vcpus", min=1, max=MAX_VCPUS, help="Virtual CPUs; as its profile says.")]
Memory = Annotated[str | None, typer.Option("--memory", help="Memory, like 512MiB or 4GiB; as its profile says.")]
Disk = Annotated[str | None, typer.Option("--disk", help="Size of its disk; as its profile says.")]


@dataclass(frozen=True, kw_only=True)
class VmOptions:
    """What people say of a VM that they want or think of: an option for each member. None: not given."""

    vcpus: Vcpus = None
    memory: Memory = None
    disk: Disk = None
    network: Networks = None
    volume: Volumes = None
    pool: Pool = None
    encrypted: Encrypted = False
    nic: Nic = None
    tpm: Tpm = None

    def asked(self) -> dict[str, object]:
        """As the API takes it in a body; what was not given is left out.

        :raises InvalidInput: ``memory.…``, ``disk.…``, ``network.…``, ``volume.…``
        """
        given = [text.partition(_ADDRESS) for text in self.network or ()]
        networks = [check_name(name, what="network") for name, _, _ in given]
        for name, chosen, address in given:
            if chosen and not address:
                hint = f"write --network {name},ip=ADDRESS, or --network {name} for a free one"
                raise InvalidInput("cli.usage", f"--network {name} names no address after ip=", hint=hint)
        wanted: dict[str, object] = {
            "vcpus": self.vcpus,
            "memory_mib": None if self.memory is None else memory_mib(self.memory),
            "disk_bytes": None if self.disk is None else disk_bytes(self.disk),
            "network": next(iter(networks), None),
            "more_networks": networks[1:],
            "addresses": {name: address for name, _, address in given if address},
            "volumes": [name for name in self.volume or () if check_name(plain_name(name), what="volume")],
            "pool": self.pool,
            "encrypted": self.encrypted or None,
            "nic": self.nic,
            "tpm": self.tpm,
        }
        return {name: value for name, value in wanted.items() if value not in (None, [], {})}

    def query(self) -> dict[str, str]:
        """The same as a query has it, which asks about no chosen address.

        :raises InvalidInput: as :meth:`asked`, and ``cli.usage``"""
        wanted = self.asked()
        if "addresses" in wanted:
            hint = "leave ,ip=ADDRESS out; whether an address is free, create-vm says"
            raise InvalidInput("cli.usage", "--network takes no address here, as none is looked at", hint=hint)
        return {name: _in_query(value) for name, value in wanted.items()}


def _in_query(value: object) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_vm_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of :class:`VmOptions`, which it takes as one argument ``vm``."""
    own, options = signature(command, eval_str=True), signature(VmOptions, eval_str=True).parameters
    parameters: list[Parameter] = []
    for parameter in own.parameters.values():
        parameters += options.values() if parameter.name == "vm" else [parameter]

    @wraps(command)
    def with_options(**given: Any) -> None:
        vm = VmOptions(**{name: given.pop(name) for name in options})
        command(vm=vm, **given)

    vars(with_options)["__signature__"] = own.replace(parameters=parameters)  # which Typer reads
    return with_options


Bandwidth = Annotated[
    str | None, typer.Option("--bandwidth", help="How much of a VM goes in a second at most, like 200MiB.")
]


def bandwidth_mib(text: str | None) -> dict[str, object]:
    """For the body of what moves VMs. :raises InvalidInput: ``bandwidth.invalid``, ``bandwidth.out_of_range``"""
    if text is None:
        return {}
    return {"bandwidth_mib": parse_size(text, field="bandwidth", at_least=MIB, at_most=TIB) // MIB}


Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only start it.")]
