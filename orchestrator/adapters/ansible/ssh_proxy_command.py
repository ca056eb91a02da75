# SPDX-License-Identifier: Apache-2.0
"""ssh's ProxyCommand: connects to the unix socket named as its only argument and hands that connection to ssh.

With ProxyUseFdpass (ssh_config(5)) ssh waits for it on the socket that is this program's standard output.
"""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as proxy, socket.socket(fileno=os.dup(1)) as ssh:
    proxy.connect(sys.argv[1])
    socket.send_fds(ssh, [b"\0"], [proxy.fileno()])
