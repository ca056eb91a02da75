# SPDX-License-Identifier: Apache-2.0
"""What `make soak` has run, written down."""
