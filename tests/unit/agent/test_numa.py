# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of NUMA nodes and CPUs, read as it is."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import machine
from orchestrator.core.hosts.cpus import HugePages, NumaNode

SYSTEM = "sys/devices/system"


def write(root: Path, path: str, text: str) -> None:
    file = root / SYSTEM / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n", encoding="utf-8")


def host(root: Path) -> Paths:
    """Two nodes of two cores with two threads each, as a server with two sockets has them, only smaller."""
    for number, cpus, cores in ((0, "0-1,4-5", ("0,4", "1,5")), (1, "2-3,6-7", ("2,6", "3,7"))):
        write(root, f"node/node{number}/cpulist", cpus)
        write(
            root, f"node/node{number}/meminfo", f"Node {number} MemTotal:       65536 kB\nNode {number} MemFree: 1 kB"
        )
        for core in cores:
            for cpu in core.split(","):
                write(root, f"cpu/cpu{cpu}/topology/thread_siblings_list", core)
    write(root, "node/possible", "0-1")
    return Paths(root=root, storage=root / "var")


def test_each_node_has_its_cores_with_the_threads_of_one_together(tmp_path: Path) -> None:
    assert machine.read_numa_nodes(host(tmp_path)) == (
        NumaNode(id=0, cores=((0, 4), (1, 5)), memory_mib=64),
        NumaNode(id=1, cores=((2, 6), (3, 7)), memory_mib=64),
    )


def test_huge_pages_that_the_node_has_are_told_by_size(tmp_path: Path) -> None:
    paths = host(tmp_path)
    for size, total, free in ((2048, 64, 60), (1048576, 0, 0)):
        write(tmp_path, f"node/node1/hugepages/hugepages-{size}kB/nr_hugepages", str(total))
        write(tmp_path, f"node/node1/hugepages/hugepages-{size}kB/free_hugepages", str(free))
    first, second = machine.read_numa_nodes(paths)
    assert first.hugepages == ()
    assert second.hugepages == (HugePages(size_kib=2048, total=64, free=60),)


def test_huge_pages_are_for_vms_where_hugetlbfs_is_mounted_for_their_size(tmp_path: Path) -> None:
    paths = host(tmp_path)
    for size in (2048, 1048576):
        write(tmp_path, f"node/node0/hugepages/hugepages-{size}kB/nr_hugepages", "4")
    (tmp_path / "proc").mkdir()
    for mounts, sizes in (
        ("tmpfs /run tmpfs rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n", {2048}),
        ("hugetlbfs /huge hugetlbfs rw,pagesize=1024M 0 0\nnone /x hugetlbfs rw,pagesize=2048K 0 0\n", {2048, 1048576}),
        ("hugetlbfs /dev/hugepages hugetlbfs rw 0 0\nshort\n", set()),
    ):
        (tmp_path / "proc/mounts").write_text(mounts)
        first, _ = machine.read_numa_nodes(paths)
        assert {pages.size_kib for pages in first.hugepages if pages.mounted} == sizes


def test_a_node_whose_memory_is_not_told_has_not_none(tmp_path: Path) -> None:
    paths = host(tmp_path)
    (tmp_path / SYSTEM / "node/node1/meminfo").unlink()
    assert [(node.memory_mib, node.ordinary_mib) for node in machine.read_numa_nodes(paths)] == [(64, 64), (None, None)]


def test_a_node_of_memory_alone_has_no_cores(tmp_path: Path) -> None:
    paths = host(tmp_path)
    write(tmp_path, "node/node10/cpulist", "")
    assert [(node.id, node.cores) for node in machine.read_numa_nodes(paths)][-1] == (10, ())


def test_a_cpu_whose_siblings_are_not_told_is_a_core_of_its_own(tmp_path: Path) -> None:
    paths = host(tmp_path)
    (tmp_path / SYSTEM / "cpu/cpu0/topology/thread_siblings_list").unlink()
    write(tmp_path, "cpu/cpu1/topology/thread_siblings_list", "not cpus")
    assert machine.read_numa_nodes(paths)[0].cores == ((0,), (1,), (4,), (5,))


def test_a_sibling_that_is_offline_is_left_out(tmp_path: Path) -> None:
    paths = host(tmp_path)
    write(tmp_path, "node/node0/cpulist", "0-1,4")
    assert machine.read_numa_nodes(paths)[0].cores == ((0, 4), (1,))


def test_a_kernel_without_nodes_tells_none(tmp_path: Path) -> None:
    assert machine.read_numa_nodes(Paths(root=tmp_path, storage=tmp_path / "var")) == ()


def cpuinfo(root: Path, text: str) -> Paths:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/cpuinfo").write_text(text)
    return Paths(root=root, storage=root / "var")


def test_cpus_are_alike_where_model_and_flags_are(tmp_path: Path) -> None:
    told = "processor\t: 0\nmodel name\t: AMD EPYC 9454\nflags\t\t: fpu vme {more}\n\nprocessor\t: 1\nflags\t: none\n"
    first = machine.read_cpu(cpuinfo(tmp_path, told.format(more="avx512f")))
    assert first is not None
    assert (first.model, len(first.features), first.page_kib) == (
        "AMD EPYC 9454",
        16,
        os.sysconf("SC_PAGE_SIZE") // 1024,
    )
    assert machine.read_cpu(cpuinfo(tmp_path, told.replace("fpu vme", "vme fpu").format(more="avx512f"))) == first
    other = machine.read_cpu(cpuinfo(tmp_path, told.format(more="")))
    assert other is not None
    assert other.features != first.features
    assert machine.read_cpu(cpuinfo(tmp_path, "processor : 0\n")) is None
