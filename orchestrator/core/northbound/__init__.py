# SPDX-License-Identifier: Apache-2.0
"""What OVN's northbound database has to have for networks over all hosts, and what differs from that."""
