# SPDX-License-Identifier: Apache-2.0
"""The server as a process: settings, which adapter stands behind which port, backup, certificates."""
