# SPDX-License-Identifier: Apache-2.0
"""Files for Prometheus: what is alerted on, and what is counted beforehand. ``vgpuctl metrics rules`` writes them."""
