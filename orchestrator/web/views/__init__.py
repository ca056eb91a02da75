# SPDX-License-Identifier: Apache-2.0
"""One file per noun: what a page asks of the API, and the template that shows it."""
