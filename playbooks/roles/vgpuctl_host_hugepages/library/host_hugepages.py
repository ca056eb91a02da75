# SPDX-License-Identifier: Apache-2.0
"""Sets huge pages of NUMA nodes aside (kernel documentation, admin-guide/mm/hugetlbpage) and says what the kernel gave.

Runs on the host, under any Python that Ansible supports there. Pages that VMs use are never taken: the kernel keeps
them.
"""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: host_hugepages
short_description: Keeps so many huge pages of NUMA nodes
description: A failure begins with its code, as C([host.hugepages_short] text).
author: vgpuctl
options:
  pages:
    description: How many of which size on which node.
    type: list
    elements: dict
    required: true
    options:
      size: {description: Of one page., type: str, choices: [2M, 1G], required: true}
      node: {description: The NUMA node., type: int, required: true}
      pages: {description: How many., type: int, required: true}
  root: {description: Below which sysfs is looked for., type: path, default: /}
"""

SIZES = {"2M": "hugepages-2048kB", "1G": "hugepages-1048576kB"}


def file_of(root: Path, one: dict[str, object]) -> Path:
    """Where the kernel is told."""
    return root / f"sys/devices/system/node/node{one['node']}/hugepages/{SIZES[str(one['size'])]}/nr_hugepages"


def count(path: Path) -> int:
    return int(path.read_text(encoding="ascii").strip() or 0)


def _keep(module: AnsibleModule, root: Path, one: dict[str, object]) -> bool:
    """Whether there were others before."""
    path, wanted = file_of(root, one), int(str(one["pages"]))
    what = f"pages of {one['size']} on node {one['node']}"
    if wanted < 0 or not path.exists():
        why = f"the kernel has no {path}" if wanted >= 0 else "there is no such number"
        module.fail_json(msg=f"[host.no_such_hugepages] {wanted} {what}: {why}")
    if count(path) == wanted:
        return False
    if not module.check_mode:
        path.write_text(f"{wanted}\n", encoding="ascii")
        there = count(path)
        if there != wanted:
            module.fail_json(
                msg=f"[host.hugepages_short] the kernel has {there} of {wanted} {what}: its memory is in use or broken "
                f"up; they are set aside at the next boot, before anything else takes it"
            )
    return True


def main() -> None:
    """Ansible's entry point."""
    number = {"type": "int", "required": True}
    size = {"type": "str", "choices": list(SIZES), "required": True}
    module = AnsibleModule(
        argument_spec={
            "pages": {
                "type": "list", "elements": "dict", "required": True,
                "options": {"size": size, "node": number, "pages": number},
            },
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )  # fmt: skip
    root = Path(module.params["root"])
    changed = [one for one in module.params["pages"] if _keep(module, root, one)]
    module.exit_json(changed=bool(changed), pages=changed)


if __name__ == "__main__":
    main()
