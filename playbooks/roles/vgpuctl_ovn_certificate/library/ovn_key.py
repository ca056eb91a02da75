# SPDX-License-Identifier: Apache-2.0
"""Keeps a key for OVN on the machine that uses it, and the site's certificate for it.

Runs there, under any Python that Ansible supports there. The key is never returned."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: ovn_key
short_description: Keeps a key, and the certificate of the site's present authority for it
description: Without C(signed) it returns C(request) (PKCS 10, PEM).
author: vgpuctl
options:
  directory: {description: Where key.pem and certificate.pem are., type: path, required: true}
  name: {description: The common name., type: str, required: true}
  whose: {description: Which authority signs it., type: str, choices: [central, host], required: true}
  signed: {description: What the site answered to the request., type: dict}
  renewed_s: {description: A certificate that ends sooner is wanted anew., type: int, default: 15552000}
"""

AUTHORITIES = {"central": "central.pem", "host": "hosts.pem"}


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

    def keep(self, signed: dict[str, str]) -> bool:
        """Whom to believe, and the new certificate where the one that is there will not do; whether any was written."""
        central, hosts = signed["central"], signed["hosts"]
        believed = {"central.pem": central, "hosts.pem": hosts, "all.pem": central + hosts}
        changed = sum(self.write(file, text) for file, text in believed.items()) > 0
        if not self.is_certified():
            self.write("certificate.pem", signed["certificate"])
            # Open vSwitch's programs read a key and its certificate again when both are newer (stream-ssl.c)
            os.utime(self.path)
            changed = True
        return changed

    def write(self, file: str, text: str) -> bool:
        """Whole or not at all; False: it was so already."""
        path, part = self.directory / file, self.directory / f"{file}.part"
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return False
        part.write_text(text, encoding="utf-8")
        part.chmod(0o644)
        part.replace(path)
        return True

    def is_certified(self) -> bool:
        """Whether the authority that is beside it signed what is there for this key and this name, and it lasts."""
        certificate = str(self.directory / "certificate.pem")
        lasts, _ = self.openssl("x509", "-in", certificate, "-noout", "-checkend", str(self.module.params["renewed_s"]))
        authority = str(self.directory / AUTHORITIES[self.module.params["whose"]])
        signed, _ = self.openssl("verify", "-CAfile", authority, certificate)
        _, subject = self.openssl("x509", "-in", certificate, "-noout", "-subject", "-nameopt", "multiline")
        _, its = self.openssl("x509", "-in", certificate, "-noout", "-pubkey")
        _, ours = self.openssl("pkey", "-in", str(self.path), "-pubout")
        named = [line.partition("=")[2].strip() for line in subject.splitlines() if "commonName" in line]
        return lasts == signed == 0 and named == [self.module.params["name"]] and its == ours


def main() -> None:
    """Ansible's entry point."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "whose": {"type": "str", "choices": list(AUTHORITIES), "required": True},
            "signed": {"type": "dict"},
            "renewed_s": {"type": "int", "default": 15552000},
        },
        supports_check_mode=True,
    )
    key = Key(module)
    made = not key.path.is_file()
    if module.check_mode:
        module.exit_json(changed=made or not key.is_certified())
    if module.params["signed"]:
        module.exit_json(changed=key.keep(module.params["signed"]))
    if made:
        key.make()
    code, request = key.openssl("req", "-new", "-key", str(key.path), "-subj", f"/CN={module.params['name']}")
    if code != 0:
        module.fail_json(msg=f"[host.ovn_key] openssl makes no request: {request.strip()[-200:]}")
    module.exit_json(changed=made, request=request)


if __name__ == "__main__":
    main()
