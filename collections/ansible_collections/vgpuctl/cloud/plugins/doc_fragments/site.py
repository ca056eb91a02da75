# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What all modules have in common: which server they speak to, as whom and how long, and what they show."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Says what it would do and changes nothing.
    support: full
  diff_mode:
    description: Shows what is there and what would be.
    support: full
options:
  api_url:
    description:
      - The server, as C(https://HOST:PORT).
      - When left out it is the server that the command C(vgpuctl) uses on the machine where the module runs; that is
        the current context, E(VGPUCTL_CONTEXT) or E(VGPUCTL_STATE), or the server of the machine itself.
    type: str
  api_token:
    description:
      - The token to show. Better kept in a vault or in O(api_token_file).
      - When left out it is E(VGPUCTL_TOKEN), what E(VGPUCTL_TOKEN_FILE) names, or the context's.
    type: str
  api_token_file:
    description: File with the token alone in it, which nobody else may read.
    type: path
  ca_file:
    description: PEM file of whom to trust; whom the machine trusts when left out.
    type: path
  context:
    description: One of the contexts that C(vgpuctl context list) shows.
    type: str
  state_dir:
    description: State directory of a server on the machine where the module runs.
    type: path
  timeout:
    description:
      - How long to wait for an operation, in seconds. It goes on when the time is over, and the same task again waits
        for it again.
    type: int
    default: 600
notes:
  - Runs where the server can be reached, mostly with C(connection=local) or C(delegate_to=localhost). It needs nothing
    but Ansible there.
  - A refusal is one line that begins with the error's code, which is returned as RV(ignore:code) too.
"""

    DESCRIBED = r"""
options:
  description:
    description: What it is for; as it is when left out, V('') for none.
    type: str
    version_added: 0.3.0
  labels:
    description: By key; null takes one away, those that are not named stay.
    type: dict
    version_added: 0.3.0
"""
