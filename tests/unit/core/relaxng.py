# SPDX-License-Identifier: Apache-2.0
"""XML judged by the schemas that libvirt itself judges by, with the library that it does it with."""

from __future__ import annotations

import ctypes
import ctypes.util

SCHEMAS = "/usr/share/libvirt/schemas"

_xml = ctypes.CDLL(ctypes.util.find_library("xml2"))
for _name in ("xmlRelaxNGNewParserCtxt", "xmlRelaxNGParse", "xmlRelaxNGNewValidCtxt", "xmlReadMemory"):
    getattr(_xml, _name).restype = ctypes.c_void_p


def is_valid(schema: str, text: str) -> bool:
    """``schema``: file name of one of libvirt's."""
    data = text.encode()
    parser = ctypes.c_void_p(_xml.xmlRelaxNGNewParserCtxt(f"{SCHEMAS}/{schema}".encode()))
    grammar = ctypes.c_void_p(_xml.xmlRelaxNGParse(parser))
    assert grammar, f"libvirt's schema {schema} is not on this machine"
    document = ctypes.c_void_p(_xml.xmlReadMemory(data, len(data), b"", None, 0))
    judge = ctypes.c_void_p(_xml.xmlRelaxNGNewValidCtxt(grammar))
    return int(_xml.xmlRelaxNGValidateDoc(judge, document)) == 0
