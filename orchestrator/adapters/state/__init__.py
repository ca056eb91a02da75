# SPDX-License-Identifier: Apache-2.0
"""Files of the state directory: keys and locks."""
