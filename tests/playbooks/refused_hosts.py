# SPDX-License-Identifier: Apache-2.0
"""Hosts of an inventory that none can be meant by, for test_host_import.py."""

from __future__ import annotations

from typing import Final

HOSTS_THAT_CANNOT_BE: Final = {
    "ansible_ssh_private_key_file=~nobody-of-that-name/key": "there is no such user here",
    "ansible_host=-oProxyCommand=x": "is not an address",
    "ansible_host='{{ secret }}'": "ansible_host is a template",
    "ansible_port=99999": "ansible_port is not a TCP port",
    "ansible_port=ssh": "ansible_port is not a TCP port",
    "ansible_connection=local": "hosts are reached over ssh",
    "ansible_ssh_common_args='-o ProxyCommand=x'": "leads through another machine",
    "ansible_user='x y'": "is not a user name",
    "ansible_host=fe80::1%eno1": "'fe80::1%eno1' is not an address",
    "ansible_ssh_common_args='-J bastion'": "ansible_ssh_common_args leads through another machine",
    "ansible_ssh_args='-o ProxyJump=bastion'": "ansible_ssh_args leads through another machine",
    "ansible_ssh_extra_args='-o BindAddress=192.0.2.9'": "ansible_ssh_extra_args binds to an address",
    "ansible_ssh_common_args='-o CertificateFile=/x'": "logs in with more than a key file",
    "ansible_ssh_common_args='-i /x' ansible_ssh_private_key_file=/y": "logged in to with 2 keys",
    "ansible_ssh_common_args=--wrong": "ansible_ssh_common_args is not understood: unknown option",
    "ansible_ssh_common_args=-4\\ b": "ssh takes 'b' of its arguments for the host",
    "ansible_ssh_pass=hunter2": "ansible_ssh_pass is set",
    "ansible_user=ops ansible_become_password=hunter2": "ansible_become_password is set",
    "ansible_user=ops ansible_become_method=su": "ansible_become_method is 'su'",
    "ansible_ssh_executable=/opt/jump": "ansible_ssh_executable is '/opt/jump'",
    "ansible_connection=paramiko ansible_paramiko_port=7": "ansible_paramiko_port is for a connection",
    "vgpuctl_gpus=gpu0": "gpu0",
    "vgpuctl_name=Bad_Name": "is not allowed",
    "ansible_user=7": "ansible_user is not text",
    "vgpuctl_labels=canary": "vgpuctl_labels is not a mapping",
    "vgpuctl_labels=\"{'ring': ['x']}\"": "vgpuctl_labels has a value that is not text",
    "vgpuctl_labels=\"{'-ring': 'x'}\"": "is not a label",
}
"""Variables of a host -> why it cannot be taken."""
