# SPDX-License-Identifier: Apache-2.0
"""Files of offerings and manifests: letters that nobody sees, and things that do not belong together."""

from __future__ import annotations

import sys
import unicodedata
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.manifest_file import read_manifest
from orchestrator.catalogue.offering_files import mistakes_in, validate_offering_file
from orchestrator.core.errors import InvalidInput
from orchestrator.core.offerings.offering import Offering
from tests.hostile.families.family import Attack, Family

GOOD = """\
schema_version: 1
offerings:
  - name: notebook
    kind: time_sliced
    vgpu_type: NVIDIA L40S-12Q
"""
UNSEEN = [
    letter
    for letter in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(letter) in {"Cc", "Cf", "Zl", "Zp"} and letter not in "\t\n\r"
]
PLACES = {"as it is": "    description: a{letter}b\n", "by its code": '    description: "a\\U{code:08x}b"\n',
          "in a comment": "    # a{letter}b\n"}  # fmt: skip


def _unseen(letter: str, place: str, where: Path) -> None:
    text = GOOD + PLACES[place].format(letter=letter, code=ord(letter))
    (where / "file").write_bytes(text.encode())
    (problem,) = validate_offering_file(where / "file")
    # A line that is none to us is one to YAML for some of them: the letter is refused in either count.
    assert problem.line in {6, 7}, problem
    assert str(problem).isprintable(), problem
    with pytest.raises(InvalidInput) as caught:
        read_manifest(where / "file", text)
    assert caught.value.message.isprintable()


def _stranger(vgpu_type: str, kind: str, model: str, _: Path) -> None:
    wanted = Offering(
        name="x",
        kind="time_sliced" if kind == "time_sliced" else "mig_backed",
        vgpu_type=vgpu_type,
        gpu_models=(model,),
    )
    reasons = [reason for _, reason in mistakes_in(wanted, shipped(), look_up=True)]
    assert any("gpu_models.offer_nothing_of_it" in reason for reason in reasons), reasons


def _strangers() -> dict[str, Attack]:
    """Each vGPU type with a model that has others."""
    catalogue = shipped()
    offered = {model.name: {one.name for one in catalogue.types_of_model(model)} for model in catalogue.gpu_models}
    models = sorted(name for name, types in offered.items() if types)
    found: dict[str, Attack] = {}
    for number, one in enumerate(catalogue.vgpu_types):
        others = [name for name in models if one.name not in offered[name]]
        model = others[number % len(others)]
        found[f"{one.name} on {model}"] = partial(_stranger, one.name, one.mode, model)
    return found


FAMILIES = (
    Family(
        "letters that nobody sees, in files",
        "refused with the line, said in letters that can be seen",
        {f"U+{ord(letter):04X} {place}": partial(_unseen, letter, place) for letter, place in product(UNSEEN, PLACES)},
    ),
    Family("vGPU types on GPUs that do not have them", "refused with the rule's name", _strangers()),
)
