# SPDX-License-Identifier: Apache-2.0
"""How fast a real ``vgpuctl serve`` answers over HTTP in front of 10, 1,000 and 10,000 hosts."""
