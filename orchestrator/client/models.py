# SPDX-License-Identifier: Apache-2.0
"""Bodies of the API, written from its description by ``make docs``."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

Address: TypeAlias = str


class AcceptGpus(TypedDict):
    """
    Cards of a host are right where they are.
    """

    addresses: NotRequired[list[Address]]
    """
    PCI addresses of GPUs whose card was replaced by the one there
    """


class Action(TypedDict):
    """
    A VM to delete.
    """

    host: str
    """
    Name of the host
    """
    gpu_ids: list[str]
    """
    PCI addresses of the GPUs
    """
    vm_id: str | None
    """
    Id of the VM; null: no VM is moved
    """
    vm: str | None
    """
    Its name; null: not known
    """
    tenant: str | None
    """
    Whose it is
    """
    profile: str | None
    """
    Offering, vGPU type, MIG profile or gpu:N
    """
    cost_mib: int
    """
    Memory that is copied, in MiB
    """


class AddDriverBundle(TypedDict):
    """
    A signed driver of the operator's.
    """

    source: str
    """
    Absolute path on the server's machine: .run, .deb or .rpm
    """
    signature: NotRequired[str | None]
    """
    OpenPGP, armored, as written beside it; without it: inside of a deb or rpm
    """
    key: str
    """
    The signer's public key of OpenPGP, armored
    """
    sha256: NotRequired[str | None]
    """
    What the content must hash to
    """


class AddHost(TypedDict):
    """
    A host to enrol.
    """

    name: str
    """
    What it is called
    """
    address: str
    """
    IP address or DNS name
    """
    port: NotRequired[int]
    """
    TCP port of SSH
    """
    user: NotRequired[str]
    """
    Login name on the host
    """
    provisioning_key: str
    """
    Private key for Ansible alone
    """
    fingerprint: str
    """
    SHA256:… of the host key that the operator confirmed
    """
    gpus: NotRequired[str]
    """
    unused, all or PCI addresses with commas
    """
    take_over: NotRequired[bool]
    """
    Take a host that obeys another control plane
    """


class AddImage(TypedDict):
    """
    A file or URL to take as a base image.
    """

    name: str
    """
    What it is called
    """
    source: str
    """
    Absolute path on the server's machine, or an http(s) URL
    """
    sha256: NotRequired[str | None]
    """
    What the content must hash to
    """
    format: NotRequired[Literal["qcow2", "raw"] | None]
    """
    null: told by the content; a raw disk then needs a partition table or file system that is known
    """


class AddNetwork(TypedDict):
    """
    A NAT network to make on every host that needs it.
    """

    name: str
    """
    What it is called
    """
    subnet: NotRequired[str | None]
    """
    None: the next free one
    """


DhcpServer: TypeAlias = str


class AddSiteNetwork(TypedDict):
    """
    The same, or a network on a bridge that hosts have: of the site or of one tenant.
    """

    name: str
    """
    What it is called
    """
    subnet: NotRequired[str | None]
    """
    None: the next free one
    """
    bridge: NotRequired[str | None]
    """
    Linux bridge of hosts; null: a NAT network
    """
    vlan: NotRequired[int | None]
    """
    The bridge that hosts have for this VLAN of it
    """
    dhcp_servers: NotRequired[list[DhcpServer]]
    """
    IPv4 addresses whose answers give VMs theirs; none: any that is no VM
    """
    tenant: NotRequired[str | None]
    """
    Of one with a bridge: whose alone it is; null: the site's
    """


class AdoptVm(TypedDict):
    """
    A libvirt domain that somebody else made, with one vGPU on a GPU of ours.
    """

    host: str
    """
    Name of the host
    """
    domain: str
    """
    Name or UUID of the libvirt domain
    """
    tenant: NotRequired[str]
    """
    Whose it is
    """
    name: NotRequired[str | None]
    """
    Name of the VM; as the domain's when left out
    """
    boot_policy: NotRequired[Literal["local", "ask-controller"]]
    """
    Who starts it again after a reboot of its host
    """
    although_managed_by: NotRequired[str | None]
    """
    The other controller that it is taken from
    """


class Asked(TypedDict):
    """
    What the question came to.
    """

    profile: str
    """
    The vGPU type, MIG profile or gpu:N that an offering stands for
    """
    count: int
    """
    Devices
    """
    vcpus: int
    """
    Virtual CPUs
    """
    memory_mib: int
    """
    Memory, in MiB
    """
    tenant: str
    """
    Whose it is
    """


class AttachVolume(TypedDict):
    """
    Which VM the volume is attached to, or taken from.
    """

    vm: str
    """
    Name of a VM of the same tenant, which is stopped
    """


class AuditRecord(TypedDict):
    sequence: int
    """
    Its number; they grow without gaps
    """
    at: str
    """
    When
    """
    actor: str
    """
    Who did it: a token's name, a login, or a uid of the server's machine
    """
    action: str
    """
    What was done or wanted, like create_vm
    """
    subject: str
    """
    What or whom it is about
    """
    outcome: str
    """
    done, or why not
    """
    sealed: bool
    """
    Whether a seal covers it
    """
    source: str | None
    """
    Address that the request came from, or the process on this machine; null: no request
    """
    interface: str | None
    """
    cli, ansible, python or api, as its client says; null: no request
    """
    user_agent: str | None
    """
    What its client calls itself; null: no request
    """
    site: str
    """
    Id of the pool whose audit it is, drawn with its database
    """


class AwaitedTenant(TypedDict):
    """
    A tenant for whose VMs a host waits.
    """

    tenant: str
    """
    Whose it is
    """
    vms: int
    """
    That are not stopped
    """
    policy: str
    """
    wait: its users stop them; 22:00-05:00: they are stopped in that part of each day
    """
    opens_at: str | None
    """
    When its window opens next; null: it is open, or there is none
    """


class NetworkCard(TypedDict):
    """
    A network card of a VM.
    """

    mac: str
    """
    Its hardware address, the same for the VM's life
    """
    network: str
    """
    Name of the network that it is on
    """
    network_tenant: str | None
    """
    Whose the network is; null: the site's
    """


class Cell(TypedDict):
    """
    A run of slots: one VM's place, or free slots.
    """

    start: int
    """
    First slot
    """
    size: int
    """
    In slots
    """
    vm: str | None
    """
    Name of the VM; null: it is free, or not told
    """
    tenant: str | None
    """
    Whose it is
    """
    profile: str | None
    """
    Offering, vGPU type, MIG profile or gpu:N
    """


class ChangeHost(TypedDict):
    """
    New values of a host; what is not named stays.
    """

    vcpu_overcommit: NotRequired[float | Literal["site"] | None]
    """
    vCPUs that VMs may have together for each of the host's; site: the site's setting
    """
    memory_overcommit: NotRequired[float | Literal["site"] | None]
    """
    The same for memory
    """
    allow_unconfined: NotRequired[bool | None]
    """
    Put new VMs there although neither AppArmor nor SELinux confines its QEMUs
    """
    pinnable_cpus: NotRequired[str | None]
    """
    CPUs kept for VMs that have theirs alone, as ``4-31``; empty: none. While VMs have a place there it stays as it is
    """
    rdma_nics: NotRequired[str | None]
    """
    Network cards whose virtual functions VMs may have: PCI addresses with commas; empty: none
    """
    labels: NotRequired[dict[str, str | None]]
    """
    By key; null takes one away
    """


class ChangePolicy(TypedDict):
    """
    New values; what is not named stays.
    """

    default_lease_s: NotRequired[int | None]
    """
    Of a VM made without one; null: it never ends
    """
    max_lease_s: NotRequired[int | None]
    """
    The longest lease, from now on; null: any
    """
    disk_grace_s: NotRequired[int]
    """
    How long a disk is kept after its lease
    """
    max_priority: NotRequired[Literal["low", "normal", "high"]]
    """
    The highest that its VMs may have
    """
    isolation: NotRequired[Literal["none", "instance", "gpu", "host"]]
    """
    How far its VMs are kept apart from other tenants'
    """
    preempt: NotRequired[bool]
    """
    May it have VMs of lower priority stopped for its own?
    """
    driver_upgrade: NotRequired[str]
    """
    VMs stop for driver upgrades: stop: in their host's turn; 22:00-05:00: then, UTC; wait: by users
    """


class ChangeQuota(TypedDict):
    """
    New limits by resource; null takes a limit away. Framebuffer, memory and disk in MiB.
    """

    limits: dict[str, int | None]
    """
    By resource; null takes a limit away. Framebuffer, memory and disk in MiB
    """
    anyway: NotRequired[bool]
    """
    Also limits of GPU models that the site has no GPU of
    """


class ChangeVm(TypedDict):
    """
    New labels of a VM, and whether it is protected; what is not named stays.
    """

    labels: NotRequired[dict[str, str | None]]
    """
    By key; null takes one away
    """
    protected: NotRequired[bool | None]
    """
    Whether it is refused to delete it until this is taken back; null: as it is
    """


class CheckHost(TypedDict):
    """
    A host to look at before it is added.
    """

    address: str
    """
    IP address or DNS name
    """
    port: NotRequired[int]
    """
    TCP port of SSH
    """
    user: NotRequired[str]
    """
    Login name on the host
    """
    provisioning_key: str
    """
    Used for this look and not kept
    """
    fingerprint: str
    """
    SHA256:… of the host key that the operator confirmed
    """


class ConsoleLog(TypedDict):
    """
    What a serial console wrote last.
    """

    content_base64: str
    """
    In base64, as guests print any bytes; empty: nothing was kept
    """


class Cordon(TypedDict):
    """
    Who cordoned a host, when and why.
    """

    at: str
    """
    When
    """
    by: str
    """
    Login name, token or uid of whoever cordoned it
    """
    reason: str | None
    """
    Why, for people
    """


class CordonHost(TypedDict):
    """
    Why a host gets no new VMs.
    """

    reason: NotRequired[str | None]
    """
    Why, for people
    """


class CreateTenant(TypedDict):
    """
    A tenant: VMs, members and quota of its own.
    """

    name: str
    """
    What it is called
    """


class CreateToken(TypedDict):
    """
    A token for a program. It acts in one tenant (``*``: everywhere) with one role.
    """

    tenant: NotRequired[str]
    """
    Whose it is
    """
    role: Literal["admin", "operator", "tenant-admin", "tenant-user", "read-only"]
    """
    What its holder may do
    """
    lifetime_s: NotRequired[int | None]
    """
    None: until it is revoked
    """
    name: NotRequired[str | None]
    """
    What it is for
    """


MoreNetwork: TypeAlias = str


Volume: TypeAlias = str


SshKey: TypeAlias = str


ProvisionItem: TypeAlias = str


class CreateVm(TypedDict):
    """
    A wanted VM. The same name and values again mean the same VM.
    """

    name: str
    """
    What it is called
    """
    tenant: NotRequired[str]
    """
    Whose it is
    """
    profile: str
    """
    Offering, NVIDIA vGPU type, MIG profile or gpu:N
    """
    image: str
    """
    Of the tenant or the site; ``tenant/name``: one that another tenant shares
    """
    vcpus: NotRequired[int | None]
    """
    Left out: as the profile says
    """
    memory_mib: NotRequired[int | None]
    """
    Left out: as the profile says
    """
    disk_bytes: NotRequired[int | None]
    """
    Left out: as the profile says
    """
    network: NotRequired[str]
    """
    Name of the network that it is on
    """
    more_networks: NotRequired[list[MoreNetwork]]
    """
    Networks of further network cards, in order
    """
    volumes: NotRequired[list[Volume]]
    """
    Data volumes of the tenant, in this order
    """
    nic: NotRequired[Literal["rdma"] | None]
    """
    A virtual function of a network card near its GPU; null: what its profile says
    """
    ssh_keys: NotRequired[list[SshKey]]
    """
    OpenSSH public key lines
    """
    user_data: NotRequired[str | None]
    """
    For cloud-init; kept secret
    """
    host: NotRequired[str | None]
    """
    Only this host will do
    """
    gpu: NotRequired[str | None]
    """
    Only this GPU will do, by its PCI address
    """
    start: NotRequired[bool]
    """
    Whether it is started
    """
    boot_policy: NotRequired[Literal["local", "ask-controller"]]
    """
    Who starts it again after a reboot of its host
    """
    priority: NotRequired[Literal["low", "normal", "high"]]
    """
    At most what the tenant's policy allows
    """
    preempt: NotRequired[bool]
    """
    When it does not fit, stop VMs of lower priority for it; they keep their disks
    """
    label: NotRequired[str | None]
    """
    Marks VMs that belong together in a file for apply
    """
    labels: NotRequired[dict[str, str]]
    """
    Say nothing about what the VM is
    """
    protected: NotRequired[bool]
    """
    Whether it is refused to delete it until this is taken back
    """
    lease_s: NotRequired[int | None]
    """
    How long it has its place, in seconds from now
    """
    until: NotRequired[str | None]
    """
    Or when it gives its place back, like 2026-12-01T10:00Z
    """
    provision: NotRequired[list[ProvisionItem]]
    """
    Roles by name; they are run in the order that they need
    """
    no_provision: NotRequired[bool]
    """
    Leave out the roles that its offering asks for
    """
    provision_settings: NotRequired[dict[str, int | str]]
    """
    What is said to the roles, by name, each of which knows its type
    """
    provision_secrets: NotRequired[dict[str, str]]
    """
    Files that roles need, by name, like licence_token; forgotten after the run
    """


class CreateVolume(TypedDict):
    """
    A data volume. The same name and size again mean the same volume.
    """

    name: str
    """
    What it is called
    """
    tenant: NotRequired[str]
    """
    Whose it is
    """
    size_bytes: int
    """
    In bytes
    """
    host: NotRequired[str | None]
    """
    Where it shall lie; null: where its first VM goes
    """


class Describe(TypedDict):
    """
    What people say of a thing; what is not named stays.
    """

    description: NotRequired[str | None]
    """
    null: it stays
    """
    labels: NotRequired[dict[str, str | None]]
    """
    By key; null takes one away
    """


class Device(TypedDict):
    """
    A vGPU of a VM; it exists on the host while the VM runs.
    """

    kind: Literal["mdev", "vendor_vfio", "mig_backed", "passthrough"]
    """
    Which kind of thing this is
    """
    gpu: str | None
    """
    PCI address of the GPU; null for a tenant
    """
    parent: str | None
    """
    PCI address of the function it is made on; null for a tenant
    """
    type_name: str
    """
    vGPU type as NVIDIA calls it; null: it is no vGPU
    """
    gpu_model: str | None
    """
    Of a whole GPU; null: it is a vGPU
    """
    mdev_uuid: str | None
    """
    Its UUID; null: the function itself is passed through
    """


class DriverBundle(TypedDict):
    """
    A driver as its file describes itself, checked.
    """

    sha256: str
    """
    Of the file, 64 hexadecimal digits
    """
    kind: Literal[
        "vgpu_host",
        "vgpu_guest",
        "datacenter",
        "fabric_manager",
        "dcgm",
        "container_toolkit",
        "cuda_toolkit",
        "cudnn",
    ]
    """
    Which kind of thing this is
    """
    package: str
    """
    Name of the package in it
    """
    version: str
    """
    Its version
    """
    branch: str | None
    """
    null: it is not of a driver branch
    """
    architecture: str
    """
    As uname -m says it
    """
    format: Literal["run", "deb", "rpm"]
    """
    How the file is written
    """
    size_bytes: int
    """
    Of the file
    """
    key_id: str
    """
    Of the key that signed it
    """
    comment: str
    """
    The signer's, covered by the signature; of OpenPGP whose key it is
    """
    created_at: str
    """
    When it was made
    """


class DriverRow(TypedDict):
    """
    One thing that was compared.
    """

    subject: str
    """
    What or whom it is about
    """
    part: str
    """
    What was compared
    """
    wanted: str | None
    """
    null: not locked
    """
    observed: str | None
    """
    null: nobody knows
    """
    verdict: Literal["ok", "drift", "forbidden", "unknown"]
    """
    How what is there compares with what is locked
    """
    reason: str
    """
    Why, for people
    """


class ExportedAuditRecord(TypedDict):
    """
    A record as it is stored.
    """

    sequence: int
    """
    Its number; they grow without gaps
    """
    at: str
    """
    When
    """
    actor: str
    """
    Who did it: a token's name, a login, or a uid of the server's machine
    """
    action: str
    """
    What was done or wanted, like create_vm
    """
    subject: str
    """
    What or whom it is about
    """
    outcome: str
    """
    done, or why not
    """
    sealed: bool
    """
    Whether a seal covers it
    """
    source: str | None
    """
    Address that the request came from, or the process on this machine; null: no request
    """
    interface: str | None
    """
    cli, ansible, python or api, as its client says; null: no request
    """
    user_agent: str | None
    """
    What its client calls itself; null: no request
    """
    site: str
    """
    Id of the pool whose audit it is, drawn with its database
    """
    seal: str | None
    """
    Over the record and those before it
    """
    proof: str | None
    """
    That the seal covers the record
    """


class ExtendLease(TypedDict):
    """
    A later end of a VM's lease: after some seconds from now, or at a moment.
    """

    lease_s: NotRequired[int | None]
    """
    How long it has its place, in seconds from now
    """
    until: NotRequired[str | None]
    """
    Or when it gives its place back, like 2026-12-01T10:00Z
    """


class FabricPartition(TypedDict):
    """
    A set of GPUs that the host's NVSwitches can join.
    """

    id: int
    """
    Stays the same for ever
    """
    modules: list[int]
    """
    Module ids of its GPUs, as NVML tells them
    """
    active: bool
    """
    Its GPUs are joined now, and parted from all others
    """
    ours: bool
    """
    Activated for a VM of ours
    """


class Finding(TypedDict):
    """
    One difference between what is wanted and what a host shows.
    """

    code: str
    """
    Stable, e.g. vm.device_missing
    """
    severity: Literal["info", "warning", "error"]
    """
    How bad it is
    """
    host: str
    """
    Name of the host
    """
    subject: str
    """
    What or whom it is about
    """
    vm: str | None
    """
    Id of the VM it is about
    """
    whose: Literal["ours", "foreign", "unknown"]
    """
    unknown: our own ledger says it is ours, the database does not know its VM
    """
    wanted: str
    """
    What should be
    """
    observed: str
    """
    What was there
    """
    repair: (
        Literal[
            "start_vm",
            "stop_vm",
            "clean_up",
            "settle_ledger",
            "upgrade_agent",
            "accept_gpus",
            "mend_host",
        ]
        | None
    )
    """
    What would mend it; null: nothing does by itself
    """
    automatic: bool
    """
    Whether the repair is done without being asked
    """
    reason: str
    """
    What the repair does, or why there is none
    """
    first_seen: str
    """
    When it was observed first
    """
    last_seen: str
    """
    When it was observed last
    """
    cleared_at: str | None
    """
    When it was no more; null: it stands
    """
    operation: str | None
    """
    The operation that was begun last to repair it
    """


class ForgetHost(TypedDict):
    """
    A host to give up.
    """

    confirm: str
    """
    The host's name once more: its VMs are lost by this
    """


class GpuInstance(TypedDict):
    """
    A GPU instance that exists. Slots are the GPU's memory slots.
    """

    id: int
    """
    The driver's number of it
    """
    profile: str
    """
    Offering, vGPU type, MIG profile or gpu:N
    """
    start: int
    """
    First slot
    """
    size: int
    """
    In slots
    """
    compute_instances: int
    """
    How many compute instances it has
    """
    vm: str | None
    """
    tenant/name of the VM it was made for; None: somebody else's, or a layout's
    """
    vms: list[str]
    """
    The same of every VM of ours in it: vGPUs of some GPUs share instances
    """
    layout: bool
    """
    It stands without a VM, as 'mig apply' made it
    """
    mig_devices: list[str]
    """
    UUIDs, for container runtimes and CUDA_VISIBLE_DEVICES
    """
    capabilities: list[str]
    """
    Files on the host that name the device files it needs
    """


class GpuRow(TypedDict):
    """
    One GPU as its slots; ``slots`` is 0 while it is empty and may be cut in any way.
    """

    host: str | None
    """
    null: not told; the GPU is then counted instead of named
    """
    gpu: str
    """
    PCI address; for a tenant a number
    """
    model: str
    """
    As NVIDIA calls it
    """
    numa: int | None
    """
    NUMA node of the GPU
    """
    cut: str | None
    """
    How the GPU is cut; null: nothing is claimed on it
    """
    slots: int
    """
    Slots of the GPU
    """
    free: int | None
    """
    null: not told
    """
    cells: list[Cell]
    """
    Runs of slots from the first to the last
    """
    unusable: str | None
    """
    Why nothing can be placed on it; null: something can
    """


class GpuScheduler(TypedDict):
    """
    How a GPU divides its time among its vGPUs, as its driver says it.
    """

    policy: Literal["best_effort", "equal_share", "fixed_share", "unknown"]
    """
    How the GPU's time is divided
    """
    time_slice_us: int | None
    """
    Microseconds; null: there are none, or the driver does not say
    """
    share_percent: float | None
    """
    What each vGPU on it gets whether others work or not; null: that depends on the others
    """


class Grant(TypedDict):
    """
    One role.
    """

    tenant: str
    """
    *: everywhere
    """
    role: Literal["admin", "operator", "tenant-admin", "tenant-user", "read-only"]
    """
    What its holder may do
    """


class GuestDriver(TypedDict):
    """
    Which NVIDIA driver is in an image.
    """

    version: str | None
    """
    null: nobody knows, or there is none
    """


class GuestFacts(TypedDict):
    """
    What the guest said of itself to the role guest_check; it is the guest's word alone.
    """

    system: str | None
    """
    Its operating system; null: nobody has looked
    """
    kernel: str | None
    """
    Release of its kernel
    """
    driver: str | None
    """
    Version of the driver that is loaded in it
    """
    gpus: list[str]
    """
    As nvidia-smi lists them there
    """
    cuda_driver: str | None
    """
    Newest CUDA that its driver runs
    """
    cuda_devices: list[str]
    """
    Devices whose memory could be written and read back
    """
    cuda_toolkit: str | None
    """
    Version of its CUDA toolkit
    """
    cudnn: str | None
    """
    Version of its cuDNN, as guest_cuda or guest_check found it
    """
    nccl: str | None
    """
    Version of its NCCL
    """
    nccl_devices: int | None
    """
    Over how many devices NCCL has added up numbers, rightly
    """
    docker: str | None
    """
    Version of its Docker, as guest_container_toolkit found it
    """
    container_toolkit: str | None
    """
    Version of its NVIDIA Container Toolkit, from the same role
    """
    containerd: str | None
    """
    Version of its containerd, as guest_k8s_node found it
    """
    kubelet: str | None
    """
    Version of its kubelet, from the same role
    """
    device_plugin: str | None
    """
    Version of NVIDIA's device plugin, from the same role
    """


class QuotaLine(TypedDict):
    resource: str
    """
    What is limited, like vcpus or vgpus:GRID T4-2Q
    """
    limit: int | None
    """
    null: no limit
    """
    used: int
    """
    How much is taken
    """


class HostBridge(TypedDict):
    """
    A bridge that the host has by itself.
    """

    name: str
    """
    What it is called
    """
    kind: Literal["linux", "openvswitch"]
    """
    No VM is put on one of Open vSwitch
    """
    vlans: list[str]
    """
    VLANs that leave through it, as ``br0.120``
    """


class HostCounts(TypedDict):
    """
    Enrolled hosts.
    """

    states: dict[
        Literal[
            "enrolling",
            "ready",
            "unreachable",
            "quarantined",
            "provisioning",
            "removing",
            "failed",
            "forgotten",
        ],
        int,
    ]
    """
    How many are in each state; states of none are left out
    """
    cordoned: int
    """
    How many take no new VM
    """


class HostGpu(TypedDict):
    """
    A GPU of a host, in short.
    """

    address: str
    """
    PCI address
    """
    model: str
    """
    As NVIDIA calls it
    """
    managed: bool
    """
    Given to us at host add; no other GPU is touched
    """


class HostKey(TypedDict):
    """
    The SSH host key that answers there now; nothing is pinned yet.
    """

    type: str
    """
    Kind of it
    """
    key: str
    """
    The public key, base64
    """
    fingerprint: str
    """
    As ssh-keygen prints it
    """


class HostNic(TypedDict):
    """
    A network card that can have virtual functions.
    """

    address: str
    """
    PCI address
    """
    interface: str | None
    """
    Its own one on the host; null: its driver makes none
    """
    numa_node: int | None
    """
    NUMA node that it is nearest to
    """
    given: bool
    """
    VMs may have functions of it
    """
    functions: int
    """
    Virtual functions that are switched on
    """
    taken: int
    """
    Those of them that VMs have, running or stopped
    """
    held: list[str]
    """
    Why others of them can be no VM's
    """


class HostUpgrade(TypedDict):
    """
    How far one host is.
    """

    host: str
    """
    Name of the host
    """
    phase: Literal[
        "waiting",
        "emptying",
        "swapping",
        "rebooting",
        "refilling",
        "done",
        "rolled_back",
        "failed",
        "kept",
    ]
    """
    What is done with it now
    """
    vms: int
    """
    VMs that ran there and run again afterwards
    """
    operation: str | None
    """
    Swaps its driver
    """
    progress: str | None
    """
    How far it is in its phase, while it is under way
    """
    why: str
    """
    What went wrong, or what it waits for
    """
    waits_for: list[AwaitedTenant]
    """
    Tenants that keep it from being taken out
    """
    opens_at: str | None
    """
    When their windows are open together next; null: not waited for
    """
    began_at: str | None
    """
    When its turn came; null: it waits
    """
    ended_at: str | None
    """
    When it was done, failed or given up; null: it goes on
    """


class HugePages(TypedDict):
    """
    Huge pages of one size on a NUMA node.
    """

    size_kib: int
    """
    Of each, in KiB
    """
    total: int
    """
    That the node has
    """
    free: int
    """
    Those of them that nobody uses
    """
    mounted: bool
    """
    Whether VMs can have them: hugetlbfs is mounted for that size
    """


class Image(TypedDict):
    """
    A registered base image.
    """

    name: str
    """
    What it is called
    """
    tenant: str | None
    """
    Whose it is; null: the site's, which every tenant uses
    """
    shared: bool
    """
    Other tenants may use it, as ``tenant/name``
    """
    sha256: str
    """
    Of the file, 64 hexadecimal digits
    """
    format: Literal["qcow2", "raw"]
    """
    How the file is written
    """
    size_bytes: int
    """
    Of the file
    """
    virtual_size_bytes: int
    """
    Of the disk in it
    """
    created_at: str
    """
    When it was made
    """
    guest_driver: str | None
    """
    The NVIDIA driver in it; null: nobody said
    """
    description: str
    """
    What people say of it
    """
    labels: dict[str, str]
    """
    Values by key
    """


class Licence(TypedDict):
    """
    NVIDIA's licence of a guest, as the driver of its host tells it; the guest is not asked.
    """

    state: Literal["licensed", "unlicensed", "unknown"]
    """
    Of the vGPU that is worst off; ``unknown``: the VM does not run, has no vGPU, or nobody says
    """
    until: str | None
    """
    When it ends unless it is renewed; null: never, or nobody says
    """


class Locked(TypedDict):
    """
    One version.
    """

    component: Literal[
        "host_driver",
        "guest_driver",
        "cuda",
        "cudnn",
        "container_toolkit",
        "fabric_manager",
        "dcgm",
    ]
    """
    Which part is locked
    """
    version: str
    """
    Its version
    """
    sha256: str | None
    """
    Of the bundle that it is installed from; null: any of that version
    """


class LockedForm(TypedDict):
    """
    A version and the bundle that it is installed from.
    """

    version: str
    """
    Its version
    """
    sha256: NotRequired[str | None]
    """
    Of the file, 64 hexadecimal digits
    """


class Member(TypedDict):
    tenant: str
    """
    Whose it is
    """
    subject: str
    """
    What or whom it is about
    """
    role: Literal["admin", "operator", "tenant-admin", "tenant-user", "read-only"]
    """
    What its holder may do
    """


class PutMember(TypedDict):
    """
    Somebody's role. ``uid:1000`` is a user of the server's machine.
    """

    subject: str
    """
    What or whom it is about
    """
    role: Literal["admin", "operator", "tenant-admin", "tenant-user", "read-only"]
    """
    What its holder may do
    """


MigEntryForm = TypedDict(
    "MigEntryForm",
    {
        "device-filter": NotRequired[str | list[str] | None],
        "devices": Literal["all"] | list[int],
        "mig-enabled": bool,
        "mig-devices": NotRequired[dict[str, int] | None],
    },
)


class MigLayout(TypedDict):
    """
    One configuration.
    """

    entries: list[MigEntryForm]
    """
    As below mig-configs in the file; the last one that speaks of a GPU counts
    """


class ModelUse(TypedDict):
    """
    GPUs of one model; to a tenant those that its VMs are on.
    """

    model: str
    """
    As NVIDIA calls it
    """
    gpus: int
    """
    How many there are
    """
    free: int | None
    """
    With nothing on them and usable; null for a tenant
    """
    unusable: int | None
    """
    On which nothing new is placed: cordoned or broken; null for a tenant
    """
    used: float
    """
    How many whole GPUs the parts add up to that VMs have
    """


class Network(TypedDict):
    """
    A network that VMs can be put on.
    """

    name: str
    """
    What it is called
    """
    subnet: str | None
    """
    null: it is on a bridge of hosts
    """
    bridge: str | None
    """
    Of the hosts' own; null: a NAT network of ours
    """
    vlan: int | None
    """
    The VLAN that the bridge carries; null: none
    """
    dhcp_servers: list[str]
    """
    Whose answers give VMs their addresses; none: any that is no VM
    """
    dns_servers: list[str]
    """
    Which its VMs are told; none: those of the bridge's DHCP server
    """
    dns_domain: str | None
    """
    In which its VMs on one host find each other by name; null: of the site, or on a bridge of hosts
    """
    tenant: str | None
    """
    Whose it is; null: the site's
    """
    shared: bool
    """
    Every tenant may put VMs on it, which do not reach each other there
    """
    description: str
    """
    What people say of it
    """
    labels: dict[str, str]
    """
    Values by key
    """


class NicFunction(TypedDict):
    """
    A virtual function of a network card that a VM has.
    """

    mac: str
    """
    Its hardware address where the card's driver lets somebody set it; stays the VM's
    """
    under_switch: bool
    """
    Under one PCIe switch with a GPU of the VM; else on its NUMA node
    """
    card: str | None
    """
    PCI address of the card; null for a tenant
    """
    function: str | None
    """
    PCI address; null for a tenant
    """


class NumaNode(TypedDict):
    """
    A NUMA node of a host.
    """

    id: int
    """
    Stays the same for ever
    """
    cpus: str
    """
    CPUs that are online, as ``0-15,32-47``
    """
    cores: int
    """
    That these CPUs belong to; a core of two threads is two CPUs
    """
    memory_mib: int | None
    """
    Memory, in MiB
    """
    hugepages: list[HugePages]
    """
    By size; those alone that it has
    """


GpuModel: TypeAlias = str


class OperationCounts(TypedDict):
    """
    Operations that have not ended.
    """

    under_way: int
    """
    Queued or running, also those that wait
    """
    stuck: int
    """
    About which a person must decide
    """


class ParametersForm(TypedDict):
    """
    Parameters of the vGPU plugin.
    """

    uvm: NotRequired[bool]
    """
    Unified memory: MIG-backed types and full-size C types
    """
    frame_rate_limiter: NotRequired[bool | None]
    """
    Works under best_effort only
    """
    debugging: NotRequired[bool]
    """
    CUDA debuggers in the guest; rules out live migration
    """
    profiling: NotRequired[bool]
    """
    CUDA profilers in the guest; rules out live migration
    """
    console: NotRequired[bool | None]
    """
    Whether the vGPU draws the VM's VNC console
    """


class Part(TypedDict):
    """
    One device's place on a GPU.
    """

    gpu: str
    """
    PCI address; for a tenant a number
    """
    cut: str
    """
    How the GPU is cut; null: nothing is claimed on it
    """
    slots: list[int]
    """
    Slots of the GPU
    """


class Place(TypedDict):
    """
    A GPU instance.
    """

    profile: str
    """
    Offering, vGPU type, MIG profile or gpu:N
    """
    start: int
    """
    First memory slot
    """


class VmPlan(TypedDict):
    """
    What create would do, to the last host action. Identifiers differ in a real run.

    A tenant gets one when it would fit, without where and how: hosts and GPUs are the operator's.
    """

    host: str | None
    """
    Null for a tenant
    """
    gpu: str | None
    """
    PCI address of the first device's; null for a tenant
    """
    gpus: list[str]
    """
    Of each device in their order; none for a tenant
    """
    why: str
    """
    Why there, for people
    """
    preempts: list[str]
    """
    VMs that would be stopped for it; others' are not named
    """
    actions: list[dict[str, Any]]
    """
    Host actions by name, with all their values; none for a tenant
    """
    domain_xml: str | None
    """
    Null for a tenant
    """
    provision: NotRequired[list[str]]
    """
    Roles that would then be run in its guest
    """


class PlannedStop(TypedDict):
    """
    A driver upgrade of its host will stop the VM, and start it again.
    """

    policy: str
    """
    stop: in the host's turn; 22:00-05:00: then, UTC; wait: when its users stop it
    """
    opens_at: str | None
    """
    The earliest moment; null: now, or when its users stop it
    """


class Policy(TypedDict):
    default_lease_s: int | None
    """
    Of a VM that names none, in seconds; null: none
    """
    max_lease_s: int | None
    """
    The longest lease, in seconds; null: without end
    """
    disk_grace_s: int
    """
    How long the disk is kept after the lease ended, in seconds; null: for ever
    """
    max_priority: Literal["low", "normal", "high"]
    """
    The highest priority that VMs may have
    """
    isolation: Literal["none", "instance", "gpu", "host"]
    """
    Whether GPUs are shared with other tenants
    """
    preempt: bool
    """
    Whether its VMs may preempt others
    """
    driver_upgrade: str
    """
    VMs stop for driver upgrades: stop: in their host's turn; 22:00-05:00: then, UTC; wait: by users
    """


class ProblemReason(TypedDict):
    """
    Why something was refused for one group of hosts, GPUs or fields.
    """

    code: str
    """
    Stable dotted code; docs/reference/errors.md lists them
    """
    message: str
    """
    One sentence for people
    """
    subjects: list[str]
    """
    Hosts, GPUs or fields it is about; some of them where they are many
    """
    count: int
    """
    How many subjects there are, also those not named
    """


class Profile(TypedDict):
    """
    An offering, a vGPU type, a MIG profile or a number of whole GPUs.
    """

    name: str
    """
    What it is called
    """
    kind: Literal["time_sliced", "mig_backed", "mig", "passthrough"]
    """
    Which kind of thing this is
    """
    version: int
    """
    Its version
    """
    origin: Literal["catalogue", "site", "vgpu_type", "mig_profile", "gpu_count"]
    """
    Comes with vgpuctl (catalogue), added here (site), or a name of NVIDIA's
    """
    description: str
    """
    For people
    """
    vgpu_type: str | None
    """
    vGPU type as NVIDIA calls it
    """
    vgpu_count: int
    """
    vGPUs in one VM
    """
    mig_profile: str | None
    """
    GPU-instance profile
    """
    gpu_count: int
    """
    Whole GPUs in one VM
    """
    gpu_models: list[str]
    """
    Models that will do; none named: any
    """
    framebuffer_mib: int | None
    """
    Of all its devices together; null: as the GPUs have it
    """
    vcpus: int
    """
    What a VM of it has that asks for no number
    """
    memory_mib: int
    """
    The same of memory
    """
    disk_bytes: int
    """
    The same of its disk
    """
    host_labels: dict[str, str]
    """
    Labels that a host must have to offer it
    """
    cpu: Literal["shared", "pinned"]
    """
    Whether vCPUs have CPUs of their own
    """
    numa: Literal["any", "prefer", "strict"]
    """
    Whether vCPUs and memory come from the GPU's NUMA node
    """
    hugepages: Literal["2M", "1G"] | None
    """
    Huge pages that the VM's memory is made of; null: ordinary ones
    """
    firmware: Literal["bios", "uefi"]
    """
    What its guests boot by; uefi: without Secure Boot
    """
    nic: Literal["rdma"] | None
    """
    A virtual function of a network card near the GPU; null: none
    """
    provision: list[str]
    """
    Roles that are run in the guest of a new VM
    """
    hosts: list[str]
    """
    Hosts that offer it; none are named to a tenant
    """
    free: int | None
    """
    How many VMs of the usual size fit now, as /v1/capacity counts them; null for a tenant
    """
    available: bool
    """
    Some host offers it, and nothing of it is unsupported
    """
    unsupported: list[str]
    """
    What it asks for that no host is set to so far: it is refused
    """


Role: TypeAlias = str


class ProvisionVm(TypedDict):
    """
    Roles that are to be run in the guest of a VM.
    """

    roles: list[Role]
    """
    Roles by name; they are run in the order that they need
    """
    settings: NotRequired[dict[str, int | str]]
    """
    What is said to the roles, by name, each of which knows its type
    """
    secrets: NotRequired[dict[str, str]]
    """
    Files that roles need, by name, like licence_token; forgotten after the run
    """
    new_host_key: NotRequired[bool]
    """
    The SSH host key that the guest shows next counts from now on
    """


class Reason(TypedDict):
    """
    Why something does not fit, for one group of hosts or GPUs.
    """

    code: str
    """
    Stable dotted code; docs/reference/errors.md lists them
    """
    message: str
    """
    One sentence for people
    """
    subjects: list[str]
    """
    Hosts, GPUs or fields it is about; some of them where they are many
    """
    count: int
    """
    How many subjects there are, also those not named
    """


class Remedy(TypedDict):
    """
    Things that would make it fit when all of them are done.
    """

    kind: Literal["deletions"]
    """
    Which kind of thing this is
    """
    actions: list[Action]
    """
    What to do, in this order
    """
    cost_mib: int
    """
    Memory that is copied, in MiB
    """
    host: str
    """
    Name of the host
    """
    parts: list[Part]
    """
    Where it goes: slots of GPUs
    """


class RenameVm(TypedDict):
    """
    Another name for a VM.
    """

    name: str
    """
    No other VM of the tenant has it
    """


class Repairs(TypedDict):
    """
    Repairs that were begun.
    """

    operations: list[str]
    """
    Their ids
    """


class Requirement(TypedDict):
    """
    One thing that a host needs.
    """

    name: str
    """
    What it is called
    """
    state: Literal["ok", "missing", "advice"]
    """
    advice: it works without, and will not always
    """
    found: str
    """
    What is there
    """
    remedy: str | None
    """
    null: there is nothing to do
    """


class RoleResult(TypedDict):
    """
    A role as it was run last in a guest.
    """

    role: str
    """
    Its name
    """
    state: Literal["ok", "changed", "failed"]
    """
    ``ok``: everything was there already
    """
    tasks_ok: int
    """
    How many of its tasks ended well
    """
    tasks_changed: int
    """
    How many of these changed something
    """
    failed_task: str | None
    """
    Title of the task that failed; null: none did
    """
    at: str
    """
    When the run ended
    """
    operation: str
    """
    Id of the operation that works on it; null: none
    """


class ScanHost(TypedDict):
    """
    Where to look for an SSH host key.
    """

    address: str
    """
    IP address or DNS name
    """
    port: NotRequired[int]
    """
    TCP port of SSH
    """


class Scheduler(TypedDict):
    """
    How the GPU's time is divided. None leaves the driver's default.
    """

    policy: Literal["best_effort", "equal_share", "fixed_share"]
    """
    How the GPU's time is divided
    """
    time_slice_ms: NotRequired[int | None]
    """
    How long a turn is, in milliseconds; null: the driver's default
    """


class SchedulerForm(TypedDict):
    """
    How the GPU's time is divided among its vGPUs.
    """

    policy: Literal["best_effort", "equal_share", "fixed_share"]
    """
    Division of the GPU's time; a GPU has one policy
    """
    time_slice_ms: NotRequired[int | None]
    """
    1 to 30; only for equal_share and fixed_share
    """


class Server(TypedDict):
    """
    The process that answers.
    """

    version: str
    """
    Its version
    """
    pid: int | None
    """
    Its process on the server's machine; null: only operators are told
    """
    started_at: str | None
    """
    When it began; null: only operators are told
    """
    running_operations: int
    """
    Of those that the caller may see
    """
    stops_after_idle_seconds: float | None
    """
    null: it stays, or only operators are told
    """
    certificate_ends_at: str | None
    """
    When the certificate that it serves ends; null: it does not listen on the network, or only operators are told
    """
    certificate_refused: str | None
    """
    Why the certificate that is in its file now is not served; null: it is, or only operators are told
    """
    warnings: NotRequired[list[str]]
    """
    What goes wrong in the server now; operators alone are told
    """


class Software(TypedDict):
    """
    What runs on a host, as its agent last said.
    """

    agent: str
    """
    Build of our agent
    """
    agent_too_old: bool
    """
    Nothing new is made there until it is upgraded, which happens by itself
    """
    kernel: str
    """
    Release of the kernel
    """
    os: str
    """
    Name and version of the system
    """
    libvirt: str
    """
    Version of libvirt
    """
    qemu: str
    """
    Version of QEMU
    """
    nvidia_driver: str | None
    """
    Version of NVIDIA's host driver
    """
    confinement: Literal["apparmor", "selinux", "none"] | None
    """
    What keeps its QEMUs to their own files; none: nothing new is put there unless it is allowed; null: not told
    """
    uefi: NotRequired[bool | None]
    """
    Whether VMs can boot by UEFI there, without Secure Boot; null: not told
    """


Host1: TypeAlias = str


class StartDriverUpgrade(TypedDict):
    """
    Which hosts get which driver, and how many at a time.
    """

    version: str
    """
    Of the host driver; its bundle must be there
    """
    hosts: NotRequired[list[Host1]]
    """
    Empty: all
    """
    policy: NotRequired[Literal["tenant", "stop", "wait"]]
    """
    VMs stop and start again: tenant: as policies say; stop: now; wait: by users, on cordoned hosts
    """
    max_unavailable: NotRequired[int]
    """
    Hosts that are out at once, at most
    """
    canary: NotRequired[int]
    """
    Hosts that go first; the others only when these are done
    """
    failure_budget: NotRequired[int]
    """
    Hosts that may fail; at the next one it halts
    """
    window: NotRequired[str | None]
    """
    Part of each day in which hosts are taken out, in UTC: 22:00-05:00; without it at any time
    """
    reboot: NotRequired[Literal["never", "if-needed"]]
    """
    if-needed: a host reboots when its driver's module stays in use, or a newer kernel waits; never: it is not
    """
    dry_run: NotRequired[bool]
    """
    Begin nothing
    """


class Started(TypedDict):
    """
    An accepted change: which operation does it, and on what.
    """

    operation: str | None
    """
    None: nothing has to be done
    """
    name: str
    """
    What it is called
    """
    existing: bool
    """
    The same request was made before
    """
    preempted: NotRequired[list[str]]
    """
    VMs that are stopped for it; others' are not named
    """
    provisioning: NotRequired[str | None]
    """
    The operation that then runs roles in the VM's guest; null: there is none
    """


class Step(TypedDict):
    """
    One step of an operation.
    """

    name: str
    """
    Versioned, for example create_volume.1
    """
    title: str
    """
    For people
    """
    state: Literal["pending", "running", "done", "failed", "undoing", "undone", "undo_failed"]
    """
    Where it stands
    """
    started_at: str | None
    """
    When it began; null: it has not
    """
    finished_at: str | None
    """
    When it ended; null: it has not
    """
    message: str
    """
    One sentence for people
    """


class StopServer(TypedDict):
    """
    How to stop.
    """

    only_idle: NotRequired[bool]
    """
    Refuse while operations run
    """


class Tenant(TypedDict):
    name: str
    """
    What it is called
    """
    created_at: str
    """
    When it was made
    """
    description: str
    """
    What people say of it
    """
    labels: dict[str, str]
    """
    Values by key
    """


class TenantCounts(TypedDict):
    """
    What one tenant has.
    """

    tenant: str
    """
    Whose it is
    """
    vms: int
    """
    How many it has, in any state
    """
    running: int
    """
    How many of these run
    """
    gpus: int
    """
    GPUs that some VM of it is on
    """
    used: float
    """
    How many whole GPUs its parts of them add up to
    """


class Token(TypedDict):
    """
    What is known of a token; not the token.
    """

    id: str
    """
    Stays the same for ever
    """
    name: str | None
    """
    What it is called
    """
    tenant: str
    """
    Whose it is
    """
    role: Literal["admin", "operator", "tenant-admin", "tenant-user", "read-only"]
    """
    What its holder may do
    """
    made_by: str
    """
    Who made it
    """
    created_at: str
    """
    When it was made
    """
    expires_at: str | None
    """
    After which it is refused; null: never
    """
    revoked_at: str | None
    """
    When it was taken back; null: it was not
    """
    last_used_at: str | None
    """
    To the minute; null: never
    """


class TypeUse(TypedDict):
    """
    One vGPU type on one GPU.
    """

    name: str
    """
    What it is called
    """
    framebuffer_mib: int
    """
    GPU memory of one, in MiB
    """
    max_instances: int
    """
    How many fit on one GPU
    """
    used: int
    """
    How much is taken
    """
    free: int
    """
    How many could still be claimed now
    """


class UpgradeCounts(TypedDict):
    """
    A driver upgrade that is not over.
    """

    version: str
    """
    Of the driver that is brought
    """
    state: Literal["running", "paused", "halted", "aborted", "done"]
    """
    Where it stands
    """
    done: int
    """
    Hosts that have it
    """
    hosts: int
    """
    Hosts that were asked for
    """


class AuditVerdict(TypedDict):
    """
    Problems are empty when no sealed record was touched.
    """

    sealed: int
    """
    How many records seals cover
    """
    unsealed: int
    """
    How many records no seal covers yet
    """
    head: str | None
    """
    Note it elsewhere: a later check takes it
    """
    problems: list[str]
    """
    What keeps it from being used, for people
    """


class VgpuParameters(TypedDict):
    """
    Parameters of the vGPU plugin. None leaves the driver's default.
    """

    uvm: NotRequired[bool]
    """
    Unified memory works in the guest
    """
    frame_rate_limiter: NotRequired[bool | None]
    """
    Whether frames are limited; null: the driver's default
    """
    debugging: NotRequired[bool]
    """
    CUDA debuggers work in the guest
    """
    profiling: NotRequired[bool]
    """
    CUDA profilers work in the guest
    """
    console: NotRequired[bool | None]
    """
    Whether the vGPU draws the VNC console; null: the driver's default
    """


class Vm(TypedDict):
    """
    A VM. ``state`` is what the database says; while its host does not answer, nobody knows better.
    """

    id: str
    """
    Stays the same for ever
    """
    name: str
    """
    What it is called
    """
    tenant: str
    """
    Whose it is
    """
    state: Literal[
        "creating",
        "adopting",
        "running",
        "stopped",
        "starting",
        "stopping",
        "deleting",
        "failed",
        "stuck",
        "lost",
    ]
    """
    Where it stands
    """
    host: str | None
    """
    Null for a tenant
    """
    profile: str
    """
    Offering, vGPU type, MIG profile or gpu:N
    """
    device: Device
    """
    The first of ``devices``
    """
    devices: list[Device]
    """
    The pieces of GPUs that it has
    """
    addresses: list[str]
    """
    IP addresses that the guest was seen with
    """
    image: str
    """
    Name of the image that its disk was made from
    """
    vcpus: int
    """
    Virtual CPUs
    """
    memory_mib: int
    """
    Memory, in MiB
    """
    disk_bytes: int
    """
    Size of its disk, in bytes
    """
    network: str
    """
    Name of the network that it is on
    """
    network_tenant: str | None
    """
    Whose the network is; null: the site's
    """
    more_networks: list[str]
    """
    Networks of its further network cards, in their order
    """
    cards: list[NetworkCard]
    """
    Its network cards, in the order in which the guest sees them
    """
    volumes: list[str]
    """
    Data volumes that it has, in this order
    """
    nic: Literal["rdma"] | None
    """
    Asked for with the VM; null: what its profile says
    """
    nic_function: NicFunction | None
    """
    Of a network card of its host; null: it has none
    """
    ssh_keys: list[str]
    """
    OpenSSH public key lines for its first login
    """
    has_user_data: bool
    """
    Whether cloud-init got data, which stays secret
    """
    boot_policy: Literal["local", "ask-controller"]
    """
    Who starts it again after a reboot of its host
    """
    priority: Literal["low", "normal", "high"]
    """
    Who is stopped for whom
    """
    label: str | None
    """
    Of the file for apply that made it
    """
    labels: dict[str, str]
    """
    Values by key
    """
    protected: bool
    """
    Whether it is refused to delete it until this is taken back
    """
    adopted: str | None
    """
    Name of the domain that it was before it was adopted; null: we made it
    """
    operation: str | None
    """
    Id of the operation that works on it; null: none
    """
    unknown_since: str | None
    """
    Since when its host has not been seen, so that ``state`` is only what it was; null: it is seen
    """
    created_at: str
    """
    When it was made
    """
    lease_end: str | None
    """
    When it is deallocated; null: never
    """
    deallocated: Literal["lease_over", "preempted"] | None
    """
    Why it holds no claim on a GPU any more; starting it makes one on its host
    """
    planned_stop: PlannedStop | None
    """
    For a driver upgrade; null: none is planned
    """
    gpu_fault: str | None
    """
    What is wrong with its GPU, for its user; null: nothing that is known
    """


class DataVolume(TypedDict):
    """
    A disk of a tenant that stays when the VM goes that it is attached to.
    """

    id: str
    """
    Stays the same for ever
    """
    name: str
    """
    What it is called
    """
    tenant: str
    """
    Whose it is
    """
    size_bytes: int
    """
    In bytes
    """
    state: Literal["new", "ready", "deleting", "lost"]
    """
    new: made when it is first attached; lost: its host was given up, it can only be deleted
    """
    vm: str | None
    """
    Name of the VM that it is attached to; null: of none
    """
    host: str | None
    """
    Where it lies; null: nowhere yet, and for a tenant
    """
    created_at: str
    """
    When it was made
    """
    description: str
    """
    What people say of it
    """
    labels: dict[str, str]
    """
    Values by key
    """


class Caller(TypedDict):
    """
    Whoever asks.
    """

    actor: str
    """
    As the audit names them: uid:1000, token:3f2a…, oidc:…
    """
    grants: list[Grant]
    """
    Roles, and in which tenants
    """
    only_tenant: str | None
    """
    The one tenant that they have a role in; null: there are others
    """


class CapacityRow(TypedDict):
    """
    How many more VMs of one profile fit.
    """

    profile: str
    """
    Offering, vGPU type, MIG profile or gpu:N
    """
    fits_now: int
    """
    For a tenant: what its quota covers and there are places for; 1 at most where it has no quota
    """
    reason: NotRequired[Reason | None]
    """
    Why none fits now; null: some do
    """


class ComponentsForm(TypedDict):
    """
    Versions, each with or without its bundle's digest. What is left out is not locked.
    """

    host_driver: NotRequired[str | LockedForm | None]
    """
    NVIDIA vGPU driver of hosts
    """
    guest_driver: NotRequired[str | LockedForm | None]
    """
    NVIDIA driver in guests
    """
    cuda: NotRequired[str | LockedForm | None]
    """
    CUDA, in guests
    """
    cudnn: NotRequired[str | LockedForm | None]
    """
    cuDNN, in guests
    """
    container_toolkit: NotRequired[str | LockedForm | None]
    """
    NVIDIA Container Toolkit, in guests
    """
    fabric_manager: NotRequired[str | LockedForm | None]
    """
    NVIDIA Fabric Manager
    """
    dcgm: NotRequired[str | LockedForm | None]
    """
    Data Center GPU Manager
    """


class DriverCheck(TypedDict):
    """
    All that was compared.
    """

    rows: list[DriverRow]
    """
    One for each thing that was looked at
    """


class DriverUpgrade(TypedDict):
    """
    An upgrade and all of its hosts.
    """

    id: str
    """
    Stays the same for ever
    """
    version: str
    """
    Its version
    """
    state: Literal["running", "paused", "halted", "aborted", "done"]
    """
    Where it stands
    """
    policy: Literal["tenant", "stop", "wait"]
    """
    VMs stop and start again: tenant: as policies say; stop: now; wait: by users, on cordoned hosts
    """
    overridden: list[str]
    """
    Tenants whose own policies it does not follow
    """
    max_unavailable: int
    """
    Hosts that are out at once, at most
    """
    canary: int
    """
    Hosts that go first; the others only when these are done
    """
    failure_budget: int
    """
    Hosts that may fail; at the next one it halts
    """
    reboot: Literal["never", "if-needed"]
    """
    if-needed: a host reboots when its driver's module stays in use, or a newer kernel waits; never: it is not
    """
    window: str | None
    """
    Part of each day in which hosts are taken out, in UTC: 22:00-05:00; null: at any time
    """
    opens_at: str | None
    """
    When its window opens next; null: it is open, or there is none
    """
    created_at: str
    """
    When it was made
    """
    ended_at: str | None
    """
    When it was done, failed or given up; null: it goes on
    """
    hosts: list[HostUpgrade]
    """
    Each that was asked for
    """
    waves: list[list[str]]
    """
    Those that wait, if all took the same time
    """


class Explanation(TypedDict):
    """
    Where a VM would go and why, or why not and what would change that. A tenant is told whether it fits.
    """

    asked: Asked
    """
    What was asked, with offerings resolved
    """
    restricted: bool
    """
    As a tenant may know it: nothing says who or what is in the way, or where
    """
    fits: bool
    """
    Whether it could be created now
    """
    code: str | None
    """
    Stable dotted code; docs/reference/errors.md lists them
    """
    host: str | None
    """
    Name of the host
    """
    parts: list[Part]
    """
    Where it goes: slots of GPUs
    """
    why: str | None
    """
    Why there, for people
    """
    reasons: list[Reason]
    """
    Why not, each with the hosts, GPUs or fields it is about
    """
    remedies: list[Remedy]
    """
    What would make it fit, the cheapest first
    """
    gpus: list[GpuRow]
    """
    Some that are too full or cut in another way, no two alike
    """
    preempts: list[str]
    """
    VMs that would be stopped for it; not told to tenants
    """


class Fabric(TypedDict):
    """
    The fabric manager of a host whose GPUs hang on NVSwitches.
    """

    version: str | None
    """
    Its version
    """
    problem: str | None
    """
    Why no GPU of the host is given out as a whole now; null: they are
    """
    partitions: list[FabricPartition]
    """
    All that the fabric manager knows
    """


class Gpu(TypedDict):
    """
    A physical GPU as last seen, with its claims.
    """

    host: str
    """
    Name of the host
    """
    address: str
    """
    PCI address
    """
    uuid: str
    """
    NVIDIA's UUID of the GPU
    """
    model: str
    """
    As NVIDIA calls it
    """
    pci_id: str
    """
    vendor:device as lspci prints it
    """
    numa_node: int | None
    """
    NUMA node that it is nearest to
    """
    memory_mib: int | None
    """
    null: its driver does not tell, or does not have it
    """
    driver: str | None
    """
    Kernel driver bound to it
    """
    framework: Literal["mdev", "vendor_vfio", "passthrough", "none"]
    """
    How the driver offers vGPUs here, probed
    """
    virtual_functions: int
    """
    How many SR-IOV virtual functions are on
    """
    mig_enabled: bool | None
    """
    Whether MIG mode is on; null: the GPU has none
    """
    mig_pending: bool | None
    """
    The MIG mode after the GPU's next reset
    """
    gpu_instances: list[GpuInstance]
    """
    GPU instances that exist on it
    """
    scheduler: GpuScheduler | None
    """
    null: its driver lets nobody choose, or does not say
    """
    mixed_sizes: bool | None
    """
    Whether vGPUs of several sizes may be on it now; null: its driver mixes none, or does not say
    """
    managed: bool
    """
    Given to us at host add; no other GPU is ever touched
    """
    cut: str | None
    """
    How it is cut now; None: nothing is claimed on it
    """
    types: list[TypeUse]
    """
    vGPU types that it offers
    """
    vms: list[str]
    """
    tenant/name of the VMs with a claim on it
    """
    problems: list[str]
    """
    What keeps it from being used, for people
    """


class GpuMap(TypedDict):
    """
    GPUs as their slots: a page of them.
    """

    gpus: list[GpuRow]
    """
    GPUs, by host and address
    """


class GroupForm(TypedDict):
    """
    A group of hosts, by their labels.
    """

    host_driver: NotRequired[str | LockedForm | None]
    """
    NVIDIA vGPU driver of hosts
    """
    guest_driver: NotRequired[str | LockedForm | None]
    """
    NVIDIA driver in guests
    """
    cuda: NotRequired[str | LockedForm | None]
    """
    CUDA, in guests
    """
    cudnn: NotRequired[str | LockedForm | None]
    """
    cuDNN, in guests
    """
    container_toolkit: NotRequired[str | LockedForm | None]
    """
    NVIDIA Container Toolkit, in guests
    """
    fabric_manager: NotRequired[str | LockedForm | None]
    """
    NVIDIA Fabric Manager
    """
    dcgm: NotRequired[str | LockedForm | None]
    """
    Data Center GPU Manager
    """
    labels: str
    """
    Selector: ring=canary,!spare
    """


class Host(TypedDict):
    """
    A host with what was last seen on it; what nobody has seen yet is null.
    """

    name: str
    """
    What it is called
    """
    address: str
    """
    Host name or IP address that SSH reaches it at
    """
    port: int
    """
    TCP port of SSH
    """
    user: str
    """
    Login name on the host
    """
    state: Literal[
        "enrolling",
        "ready",
        "unreachable",
        "quarantined",
        "provisioning",
        "removing",
        "failed",
        "forgotten",
    ]
    """
    Where it stands
    """
    state_reason: str | None
    """
    Why it is in that state
    """
    cordoned: bool
    """
    No new VM is placed on it
    """
    cordoned_for: str | None
    """
    What of ours it is cordoned for; null: a person said so
    """
    cordon: Cordon | None
    """
    Of a person; null: nobody cordoned it, or that is not on record
    """
    host_key: str
    """
    Pinned SSH host key
    """
    machine_id: str | None
    """
    Of the machine's /etc/machine-id
    """
    last_seen_at: str | None
    """
    When the host was observed last; null: never
    """
    vcpus: int | None
    """
    Virtual CPUs
    """
    memory_mib: int | None
    """
    Memory, in MiB
    """
    storage_free_bytes: int | None
    """
    Free space where disks are made
    """
    labels: dict[str, str]
    """
    Values by key
    """
    vcpu_overcommit: float | None
    """
    Set for this host; null: the site's setting holds
    """
    memory_overcommit: float | None
    """
    Set for this host; null: the site's setting holds
    """
    allow_unconfined: bool
    """
    New VMs are put there even where its QEMUs are not confined
    """
    most_vcpus: int | None
    """
    That its VMs may have together; one VM has at most ``vcpus``
    """
    most_memory_mib: int | None
    """
    That its VMs may have together
    """
    claimed_vcpus: int
    """
    That its VMs have, running or stopped; without those on pinned CPUs
    """
    claimed_memory_mib: int
    """
    Of its VMs, in MiB
    """
    software: Software | None
    """
    What runs on it; null: not seen yet
    """
    agent_differs: bool
    """
    The agent is of another build than the server's; upgrade-agent mends it
    """
    bridges: list[HostBridge] | None
    """
    That networks can be put on; null: not seen yet
    """
    pinnable_cpus: str
    """
    CPUs kept for VMs that have theirs alone, as ``4-31``; empty: none
    """
    pinned_cpus: str
    """
    Those of them that VMs have, running or stopped
    """
    numa_nodes: list[NumaNode] | None
    """
    Empty: not told; null: not seen yet
    """
    rdma_nics: str
    """
    Network cards whose virtual functions VMs may have; empty: none
    """
    nics: list[HostNic] | None
    """
    Network cards that can have virtual functions; empty: none, or not told; null: not seen yet
    """
    fabric: Fabric | None
    """
    null: no GPU of it hangs on NVSwitches, or that is not told
    """
    gpus: list[HostGpu]
    """
    GPUs, by host and address
    """
    vms: list[str]
    """
    Names of its VMs, as tenant/name
    """
    problems: list[str]
    """
    What keeps it from being used, for people
    """


class HostCheck(TypedDict):
    """
    All that a host needs.
    """

    ready: bool
    """
    Nothing is missing
    """
    requirements: list[Requirement]
    """
    What was looked at
    """


class LayoutPlan(TypedDict):
    """
    What a configuration means for one GPU.
    """

    number: int
    """
    In the order of PCI addresses, as in the file
    """
    address: str
    """
    PCI address
    """
    mig: bool
    """
    The mode that it is in
    """
    wanted_mig: bool
    """
    The mode that the layout needs
    """
    instances: list[Place]
    """
    All that the layout has
    """
    removed: list[int]
    """
    First slots of GPU instances that go
    """
    made: list[int]
    """
    First slots of GPU instances that come
    """
    changes: bool
    """
    Whether anything would be done
    """
    in_the_way: list[str]
    """
    What others have on the GPU; it is refused because of these
    """


class LockGroup(TypedDict):
    """
    Hosts that differ from the site.
    """

    name: str
    """
    What it is called
    """
    labels: str
    """
    Selector of the hosts; the first group that picks a host counts
    """
    locked: list[Locked]
    """
    Versions that it has to have
    """


class NewToken(TypedDict):
    """
    The only answer that holds the token itself.
    """

    token: str
    """
    The token itself, which no other answer shows
    """
    about: Token
    """
    The token as lists show it
    """


class Offering(TypedDict):
    """
    An offering of the site.
    """

    name: str
    """
    What it is called
    """
    version: int
    """
    Its version
    """
    description: str
    """
    For people
    """
    kind: Literal["time_sliced", "mig_backed", "mig", "passthrough"]
    """
    Which kind of thing this is
    """
    vgpu_type: str | None
    """
    vGPU type as NVIDIA calls it
    """
    vgpu_count: int
    """
    vGPUs in one VM
    """
    mig_profile: str | None
    """
    GPU-instance profile
    """
    gpu_count: int
    """
    Whole GPUs in one VM
    """
    gpu_models: list[str]
    """
    Models that will do; none named: any
    """
    hosts: dict[str, str]
    """
    Labels that a host must have to take its VMs
    """
    scheduler: Scheduler | None
    """
    How the GPU's time is divided; null: the driver's default
    """
    parameters: VgpuParameters
    """
    Parameters of the vGPU plugin
    """
    vcpus: int | None
    """
    Of a VM that asks for no number; null: by its framebuffer
    """
    memory: str | None
    """
    The same of memory, like 32GiB
    """
    disk: str | None
    """
    The same of its disk
    """
    mixed_sizes: bool
    """
    vGPUs of several sizes share a GPU
    """
    nvlink_p2p: bool
    """
    vGPUs of one VM talk over NVLink
    """
    numa: Literal["any", "prefer", "strict"]
    """
    Whether vCPUs and memory come from the GPU's NUMA node
    """
    cpu: Literal["shared", "pinned"]
    """
    Whether vCPUs have CPUs of their own
    """
    hugepages: Literal["2M", "1G"] | None
    """
    Huge pages that the VM's memory is made of; null: ordinary ones
    """
    firmware: Literal["bios", "uefi"]
    """
    What its guests boot by; uefi: without Secure Boot
    """
    nic: Literal["rdma"] | None
    """
    A virtual function of a network card near the GPU; null: none
    """
    anti_affinity: Literal["none", "gpu", "host"]
    """
    What two VMs of this offering and tenant may not share
    """
    power_cap_w: int | None
    """
    Power limit of the GPU while it is taken, in watts
    """
    migratable: bool
    """
    Whether a running VM may be moved
    """
    provision: list[str]
    """
    Roles that are run in the guest of a new VM
    """
    provision_settings: dict[str, int | str]
    """
    What is said to these roles, by name
    """


class OfferingForm(TypedDict):
    """
    One offering.
    """

    name: str
    """
    What --profile takes: lower-case letters, digits and '-'
    """
    version: NotRequired[int]
    """
    Raise it when the meaning changes
    """
    description: NotRequired[str]
    """
    For people
    """
    kind: Literal["time_sliced", "mig_backed", "mig", "passthrough"]
    """
    Which kind of thing this is
    """
    vgpu_type: NotRequired[str | None]
    """
    NVIDIA's name; for time_sliced and mig_backed
    """
    vgpu_count: NotRequired[int]
    """
    vGPUs of that type in one VM
    """
    mig_profile: NotRequired[str | None]
    """
    GPU-instance profile; for mig
    """
    gpu_count: NotRequired[int]
    """
    Whole GPUs; for passthrough
    """
    gpu_models: NotRequired[list[GpuModel]]
    """
    GPU models that will do; none named: any
    """
    hosts: NotRequired[dict[str, str]]
    """
    Labels that a host must have, all of them; none: any host
    """
    scheduler: NotRequired[SchedulerForm | None]
    """
    How the GPU's time is divided; null: the driver's default
    """
    parameters: NotRequired[ParametersForm]
    """
    Parameters of the vGPU plugin
    """
    vcpus: NotRequired[int | None]
    """
    Of a VM that asks for no number; none: by its framebuffer
    """
    memory: NotRequired[str | None]
    """
    The same of memory, like 32GiB
    """
    disk: NotRequired[str | None]
    """
    The same of its disk, like 100GiB
    """
    mixed_sizes: NotRequired[bool]
    """
    Needs a GPU in heterogeneous mode
    """
    nvlink_p2p: NotRequired[bool]
    """
    vGPUs of one VM talk over NVLink
    """
    numa: NotRequired[Literal["any", "prefer", "strict"]]
    """
    Whether vCPUs and memory come from the GPU's NUMA node
    """
    cpu: NotRequired[Literal["shared", "pinned"]]
    """
    Whether vCPUs have CPUs of their own
    """
    hugepages: NotRequired[Literal["2M", "1G"] | None]
    """
    What the VM's memory is made of, all of it
    """
    firmware: NotRequired[Literal["bios", "uefi"]]
    """
    What its guests boot by; uefi: without Secure Boot
    """
    nic: NotRequired[Literal["rdma"] | None]
    """
    A virtual function of a network card near the GPU
    """
    anti_affinity: NotRequired[Literal["none", "gpu", "host"]]
    """
    What two VMs of a tenant may not share
    """
    power_cap_w: NotRequired[int | None]
    """
    Power limit of the GPU while it is taken
    """
    migratable: NotRequired[bool]
    """
    Whether a running VM may be moved
    """
    provision: NotRequired[list[ProvisionItem]]
    """
    Roles that are run in the guest of a new VM, as vm provision has them
    """
    provision_settings: NotRequired[dict[str, int | str]]
    """
    What is said to these roles, by name
    """
    unlisted: NotRequired[bool]
    """
    The names are newer than the shipped tables: do not look them up
    """


class Operation(TypedDict):
    """
    What is being done. ``done``: it worked; ``undone``: it failed and was taken back; ``stuck``: that failed too.
    """

    id: str
    """
    Stays the same for ever
    """
    kind: str
    """
    Which kind of thing this is
    """
    subject: str
    """
    Id of the VM or name of the host it is about
    """
    subject_name: str
    """
    tenant/name of the VM, or the host; stays when that is gone
    """
    tenant: str | None
    """
    Whose it is
    """
    state: Literal["queued", "running", "undoing", "done", "undone", "stuck"]
    """
    Where it stands
    """
    steps: list[Step]
    """
    In the order they are done
    """
    attempt: int
    """
    How many times it was tried; to go on when its guest has booted is the same one
    """
    created_at: str
    """
    When it was made
    """
    finished_at: str | None
    """
    When it ended; null: it has not
    """
    error: dict[str, Any] | None
    """
    Why it failed: code, message and hint; null: it did not
    """
    remainder: list[str]
    """
    When stuck: exactly what is left and where
    """
    warnings: list[str]
    """
    What went otherwise than asked and is no failure
    """
    waits_for_host_since: NotRequired[str | None]
    """
    Its host is out of reach: it goes on by itself when that answers again
    """
    waits_for_host: NotRequired[str | None]
    """
    That host, for those who may know of it
    """
    asked_by: NotRequired[str | None]
    """
    Who began it: uid, token or login; operator: somebody of the pool, to its tenant; server: it did
    """
    why: NotRequired[str | None]
    """
    Why, where nobody asked for it itself; null: somebody did
    """
    waits_for_guest: NotRequired[bool]
    """
    The guest boots: it goes on by itself when that is up
    """
    ways_out: NotRequired[list[Literal["cancel", "retry", "abandon"]]]
    """
    What the reader may do to it as it stands, if its role may
    """
    revision: NotRequired[int | None]
    """
    Grows with every change; for the next ?since=
    """


class Problem(TypedDict):
    """
    What went wrong. ``code`` is stable, ``detail`` is for people.
    """

    type: str
    """
    Kind of it
    """
    title: str
    """
    For people
    """
    status: int
    """
    The HTTP status
    """
    detail: str
    """
    One sentence for people
    """
    family: str
    """
    Kind of the error; fixes status and whether trying again helps
    """
    code: str
    """
    Stable dotted code; docs/reference/errors.md lists them
    """
    hint: str | None
    """
    What to do about it
    """
    operator_details: str | None
    """
    What the host, libvirt or a driver said; only told to operators
    """
    reasons: list[ProblemReason]
    """
    Why not, each with the hosts, GPUs or fields it is about
    """


class Provisioning(TypedDict):
    """
    What was put into the guest of a VM.
    """

    results: list[RoleResult]
    """
    One for each role that was ever run
    """
    facts: GuestFacts
    """
    What it said of itself
    """
    licence: Licence
    """
    What its host says of its licence
    """


class Status(TypedDict):
    """
    The whole site on one screen; for a tenant its part.
    """

    hosts: HostCounts | None
    """
    Null for a tenant
    """
    gpus: list[ModelUse]
    """
    By model
    """
    tenants: list[TenantCounts]
    """
    Those with VMs, by name
    """
    operations: OperationCounts
    """
    Their ids
    """
    findings: dict[Literal["info", "warning", "error"], int] | None
    """
    What differs from what is wanted, by how bad it is; none of it: left out. Null for a tenant
    """
    driver_upgrade: UpgradeCounts | None
    """
    Null: none goes on, or for a tenant
    """


class Capacity(TypedDict):
    """
    A row per profile, each counted on the fleet as it is.
    """

    rows: list[CapacityRow]
    """
    One for each thing that was looked at
    """


class DriverLock(TypedDict):
    """
    Versions for all hosts, and for groups of them.
    """

    site: list[Locked]
    """
    For all hosts
    """
    groups: list[LockGroup]
    """
    Hosts that differ from the site; the first that picks a host counts
    """


class DriverLockForm(TypedDict):
    """
    The whole file.
    """

    schema_version: Literal[1]
    """
    Of the form of this document
    """
    site: NotRequired[ComponentsForm]
    """
    For all hosts
    """
    groups: NotRequired[dict[str, GroupForm]]
    """
    Hosts that differ from the site; the first that picks a host counts
    """
