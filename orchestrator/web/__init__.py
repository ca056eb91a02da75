# SPDX-License-Identifier: Apache-2.0
"""Pages for browsers: a client of the API in the same process."""
