# SPDX-License-Identifier: Apache-2.0
"""Keeps a key for OVN on the machine that uses it, and says when it wants a certificate.

Runs there, under any Python that Ansible supports there. The key is never returned."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: ovn_key
short_description: Keeps a key, and requests a certificate where there is none that will do
description: Returns C(request) (PKCS 10, PEM) where a certificate is wanted.
author: vgpuctl
options:
  directory: {description: Where key.pem and certificate.pem are., type: path, required: true}
  name: {description: The common name., type: str, required: true}
  renewed_s: {description: A certificate that ends sooner is wanted anew., type: int, default: 15552000}
"""

NEEDED = ("central.pem", "all.pem", "certificate.pem")


class Key:
    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.directory = Path(module.params["directory"])
        self.path = self.directory / "key.pem"

    def openssl(self, *words: str) -> tuple[int, str]:
        code, out, err = self.module.run_command(["openssl", *words])
        return code, str(out) if code == 0 else str(err)

    def make(self) -> None:
        """0600 from its first byte on, and whole or not there."""
        part = self.directory / "key.part"
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        code, said = self.openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(part))
        if code != 0:
            self.module.fail_json(msg=f"[host.ovn_key] openssl makes no key: {said.strip()[-200:]}")
        part.chmod(0o600)
        part.replace(self.path)

    def is_certified(self) -> bool:
        """Whether all that is beside it is for this key and this name, and lasts."""
        if not all((self.directory / name).is_file() for name in NEEDED):
            return False
        certificate = str(self.directory / "certificate.pem")
        lasts, _ = self.openssl("x509", "-in", certificate, "-noout", "-checkend", str(self.module.params["renewed_s"]))
        _, subject = self.openssl("x509", "-in", certificate, "-noout", "-subject", "-nameopt", "multiline")
        _, its = self.openssl("x509", "-in", certificate, "-noout", "-pubkey")
        _, ours = self.openssl("pkey", "-in", str(self.path), "-pubout")
        named = [line.partition("=")[2].strip() for line in subject.splitlines() if "commonName" in line]
        return lasts == 0 and named == [self.module.params["name"]] and its == ours


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "renewed_s": {"type": "int", "default": 15552000},
        },
        supports_check_mode=True,
    )
    key = Key(module)
    made = not key.path.is_file()
    if made and not module.check_mode:
        key.make()
    if not made and key.is_certified():
        module.exit_json(changed=False)
    if module.check_mode:
        module.exit_json(changed=True)
    code, request = key.openssl("req", "-new", "-key", str(key.path), "-subj", f"/CN={module.params['name']}")
    if code != 0:
        module.fail_json(msg=f"[host.ovn_key] openssl makes no request: {request.strip()[-200:]}")
    module.exit_json(changed=True, request=request)


if __name__ == "__main__":
    main()
