#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A base image of VMs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image
short_description: Add and remove base images of vgpuctl
version_added: 0.2.0
author:
  - vgpuctl (@vgpuctl)
description:
  - Base images that disks of VMs are made of. What is in an image never changes under its name.
extends_documentation_fragment:
  - vgpuctl.cloud.site
  - vgpuctl.cloud.site.described
options:
  name:
    description: Its name.
    type: str
    required: true
  src:
    description: A file of the machine where the module runs, which is sent. Its SHA-256 is read each time.
    type: path
  source:
    description: An absolute path on the server's machine, or an http(s) URL that the server fetches.
    type: str
  sha256:
    description: What the content must hash to. With O(source) an image that is there is compared by this alone.
    type: str
  format:
    description: Told by the content when left out.
    type: str
    choices: [qcow2, raw]
  guest_driver:
    description: Version of the NVIDIA driver in it; V('') when nobody knows.
    type: str
  state:
    description: An image with VMs cannot be made V(absent).
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: An image of this machine
  vgpuctl.cloud.image:
    name: debian-13
    src: /srv/images/debian-13.qcow2
    guest_driver: 580.65.06

- name: An image that the server fetches
  vgpuctl.cloud.image:
    name: ubuntu-24-04
    source: https://images.example.org/ubuntu-24.04.qcow2
    sha256: 1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014
"""

RETURN = r"""
image:
  description: As the API answers it, in check mode what is known of it; empty when it is gone.
  returned: success
  type: dict
  sample: {name: debian-13, format: qcow2, guest_driver: 580.65.06, description: "", labels: {os: debian}}
"""

import pathlib

from ansible_collections.vgpuctl.cloud.plugins.module_utils.site import (
    DESCRIBED,
    ApiError,
    answer,
    describe,
    run,
    with_about,
)

SHOWN = ("name", "sha256", "format", "guest_driver", "description", "labels")


def _present(site, before):
    params = site.params
    digest = _digest(site)
    if before and digest not in (None, before["sha256"]):
        hint = "choose another name, or make that one absent"
        raise ApiError("image.exists", f"there is already an image {params['name']} with other content", hint)
    if not before and not (params["src"] or params["source"]):
        unknown = f"no image is called {params['name']!a}"
        site.warn_of_missing(ApiError("image.unknown", unknown, "src or source says what is in it"))
    driver = before.get("guest_driver") if params["guest_driver"] is None else params["guest_driver"] or None
    if site.check_mode:
        new = {"name": params["name"], "sha256": digest, "format": params["format"]}
        return {**new, **before, "guest_driver": driver, **with_about(params, before)}
    after = before or _add(site, digest)
    if after["guest_driver"] != driver:
        after = site.put("images", params["name"], "guest-driver", body={"version": driver})
    return describe(site, ["images", params["name"]], after)


def _digest(site):
    params = site.params
    said = params["sha256"].lower() if params["sha256"] else None
    if not params["src"]:
        return said
    try:
        if not pathlib.Path(params["src"]).is_file():  # a pipe or a device may have no end
            raise ApiError("file.unreadable", f"cannot read {params['src']!a}: it is no file")
        found = site.module.sha256(params["src"])
    except (OSError, ValueError) as error:
        raise ApiError("file.unreadable", f"cannot read {params['src']!a}: {error}") from error
    if said not in (None, found):
        raise ApiError("file.digest_differs", f"{params['src']!a} does not have the given SHA-256")
    return found


def _add(site, digest):
    name, form, source = site.params["name"], site.params["format"], site.params["source"]
    if site.params["src"]:
        return site.send(site.params["src"], "images", name, "content", sha256=digest, format=form)
    body = {"name": name, "source": source, "sha256": digest, "format": form}
    return site.post("images", body=body, limit_s=site.params["timeout"])


def _work(site):
    name = site.params["name"]
    before = site.find("image.unknown", "images", name) or {}
    if site.params["state"] == "present":
        after = _present(site, before)
    else:
        after = {}
        if before and not site.check_mode:
            site.delete("images", name, unknown="image.unknown")
    return answer(_shown(before), _shown(after), image=after)


def _shown(image):
    return {key: image[key] for key in SHOWN if image}


def main():
    run(
        {
            "name": {"type": "str", "required": True},
            "src": {"type": "path"},
            "source": {"type": "str"},
            "sha256": {"type": "str"},
            "format": {"type": "str", "choices": ["qcow2", "raw"]},
            "guest_driver": {"type": "str"},
            **DESCRIBED,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        _work,
        mutually_exclusive=[("src", "source")],
    )


if __name__ == "__main__":
    main()
