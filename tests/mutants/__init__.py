# SPDX-License-Identifier: Apache-2.0
"""Is every protection of the program missed when it is gone?"""
