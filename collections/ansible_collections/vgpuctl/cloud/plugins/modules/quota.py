#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits of a tenant."""

from __future__ import annotations

DOCUMENTATION = r"""
module: quota
short_description: Set what a tenant of vgpuctl may hold
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - Limits of a tenant, or of the pool that all tenants share.
extends_documentation_fragment:
  - vgpuctl.cloud.site
options:
  tenant:
    description: Whose limits; V(*) for the pool that all share.
    type: str
    required: true
  limits:
    description:
      - Limits by resource, as C(vgpuctl quota show) names them; framebuffer, memory and disk in MiB. Null takes a limit
        away; those that are not named stay.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Two GPUs, and no limit of disk any more
  vgpuctl.cloud.quota:
    tenant: research
    limits:
      devices: 2
      disk:
"""

RETURN = r"""
limits:
  description: All limits of the tenant by resource.
  returned: success
  type: dict
  sample: {devices: 2}
used:
  description: What is held, by resource.
  returned: success
  type: dict
  sample: {devices: 1}
"""

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import ApiError, answer, merged, run


def _amounts(limits):
    """What a template gave as text is a number."""
    found = {}
    for resource, amount in limits.items():
        try:
            found[str(resource)] = None if amount in (None, "") else int(str(amount))
        except ValueError as error:
            raise ApiError("quota.invalid", f"{amount!a} of {resource} is no whole number") from error
    return found


def _limits(lines):
    return {line["resource"]: line["limit"] for line in lines if line["limit"] is not None}


def _work(site):
    tenant, wanted = site.params["tenant"], _amounts(site.params["limits"])
    lines = site.find(None, "tenants", tenant, "quota") or []
    before = _limits(lines)
    after = merged(before, wanted)
    if before != after and not site.check_mode:
        lines = site.patch("tenants", tenant, "quota", body={"limits": wanted})
        after = _limits(lines)
    used = {line["resource"]: line["used"] for line in lines}
    return answer(before, after, limits=after, used=used)


def main():
    run({"tenant": {"type": "str", "required": True}, "limits": {"type": "dict", "required": True}}, _work)


if __name__ == "__main__":
    main()
