# SPDX-License-Identifier: Apache-2.0
"""What networks of kind ovn cost in OVN's own northbound."""
