# SPDX-License-Identifier: Apache-2.0
"""Reads the command line as ``nvidia-smi`` does: an option that it does not know ends with status 2."""

from __future__ import annotations

import sys
from itertools import pairwise

from . import mig, report, vgpu
from .gpus import Gpu
from .nvml import IN_USE, Nvml, NvmlError

USAGE = """NVIDIA System Management Interface
nvidia-smi [-i ID] [-L | -q -x | --query-gpu=FIELD,... --format=csv[,noheader][,nounits]]
nvidia-smi [-i ID] -pm 0|1
nvidia-smi vgpu [-i ID] [-s [-v] | -c [-v] | -q | -shm 0|1]
nvidia-smi mig [-i ID] [-lgip | -lgi | -lci | -cgi PROFILE[:START],... [-C] | -cci [PROFILE,...] [-gi ID] |
                        -dgi [-gi ID] | -dci [-gi ID] [-ci ID]]
"""


class UsageError(Exception):
    """The command line makes no sense."""


def _options(arguments: list[str], with_value: set[str]) -> dict[str, str]:
    found = {}
    rest = list(arguments)
    while rest:
        name, _, value = rest.pop(0).partition("=")
        if name in with_value and not value:
            if not rest:
                raise UsageError(f"Option {name} requires a value.")
            value = rest.pop(0)
        found[name] = value
    return found


def _chosen(nvml: Nvml, wanted: str | None) -> list[Gpu]:
    gpus = [Gpu(nvml, index, device) for index, device in enumerate(nvml.devices())]
    if wanted is None:
        return gpus
    keys = {key.strip().lower() for key in wanted.split(",")}
    chosen = [gpu for gpu in gpus if keys & {str(gpu.index), gpu.bus_id.lower(), gpu.answer("uuid").lower()}]
    if not chosen:
        raise UsageError("No devices were found")
    return chosen


def _vgpu(nvml: Nvml, arguments: list[str]) -> str:
    options = _options(arguments, {"-i", "--id", "-shm"})
    gpus = _chosen(nvml, options.pop("-i", options.pop("--id", None)))
    verbose = bool({"-v", "--verbose"} & set(options))
    names = set(options) - {"-v", "--verbose"}
    if names in ({"-s"}, {"--supported"}):
        return vgpu.types(nvml, gpus, "nvmlDeviceGetSupportedVgpus", verbose)
    if names in ({"-c"}, {"--creatable"}):
        return vgpu.types(nvml, gpus, "nvmlDeviceGetCreatableVgpus", verbose)
    if names in ({"-q"}, {"--query"}):
        return vgpu.active(nvml, gpus)
    if names == {"-shm"} and options["-shm"] in {"0", "1"}:
        return vgpu.set_mixed(nvml, gpus, int(options["-shm"]))
    raise UsageError(
        f"Option {' '.join(sorted(names)) or '(none)'} is not recognized. Please run 'nvidia-smi vgpu -h'."
    )


def _mig(nvml: Nvml, arguments: list[str]) -> str:
    lone = {at for at, (word, after) in enumerate(pairwise([*arguments, "-"])) if word == "-cci" and after[0] == "-"}
    options = _options(
        ["-cci=all" if at in lone else word for at, word in enumerate(arguments)],
        {"-i", "--id", "-cgi", "-cci", "-gi", "-ci"},
    )
    gpus = _chosen(nvml, options.pop("-i", options.pop("--id", None)))
    instance, compute = options.get("-gi"), options.get("-ci")
    lists = {"-lgip": mig.profiles, "-lgi": mig.gpu_instances, "-lci": mig.compute_instances}
    names = set(options)
    if len(names) == 1 and names <= lists.keys():
        return lists[names.pop()](nvml, gpus)
    try:
        if "-cgi" in names and names <= {"-cgi", "-C"}:
            return mig.create_gpu_instances(nvml, gpus, options["-cgi"], whole="-C" in names)
        if "-cci" in names and names <= {"-cci", "-gi"}:
            asked = "" if options["-cci"] == "all" else options["-cci"]
            return mig.create_compute_instances(nvml, gpus, asked, instance)
    except ValueError as error:
        raise UsageError("Profiles are given by their ids.") from error
    if "-dgi" in names and names <= {"-dgi", "-gi"}:
        return mig.destroy_gpu_instances(nvml, gpus, instance)
    if "-dci" in names and names <= {"-dci", "-gi", "-ci"}:
        return mig.destroy_compute_instances(nvml, gpus, instance, compute)
    raise UsageError(f"Invalid combination of input arguments: {' '.join(sorted(names))}.")


def _gpu(nvml: Nvml, arguments: list[str]) -> str:
    options = _options(arguments, {"-i", "--id", "-pm", "--persistence-mode", "--query-gpu", "--format"})
    gpus = _chosen(nvml, options.pop("-i", options.pop("--id", None)))
    names = set(options)
    if not names:
        return report.summary(nvml, gpus)
    if names in ({"-L"}, {"--list-gpus"}):
        return report.listing(gpus)
    if names in ({"-q", "-x"}, {"--query", "--xml-format"}, {"-q", "--xml-format"}):
        return report.xml(nvml, gpus)
    if names in ({"-pm"}, {"--persistence-mode"}) and set(options.values()) <= {"0", "1"}:
        return report.set_persistence(nvml, gpus, int(next(iter(options.values()))))
    formats = options.get("--format", "").split(",")
    if names == {"--query-gpu", "--format"} and formats[0] == "csv":
        fields = [field.strip() for field in options["--query-gpu"].split(",")]
        try:
            return report.query(gpus, fields, formats)
        except KeyError as unknown:
            raise UsageError(f'Field "{unknown.args[0]}" is not a valid field to query.') from unknown
    raise UsageError(f"Invalid combination of input arguments: {' '.join(sorted(names))}. Please run 'nvidia-smi -h'.")


def main(arguments: list[str]) -> int:
    """Run the command; 0 done, 2 bad usage, 9 no driver, 19 in use, 15 GPU lost (NVML's own numbers)."""
    if arguments and arguments[0] in {"-h", "--help"}:
        print(USAGE, end="")
        return 0
    try:
        with Nvml() as nvml:
            of = {"vgpu": _vgpu, "mig": _mig}.get(arguments[0] if arguments else "")
            text = _gpu(nvml, arguments) if of is None else of(nvml, arguments[1:])
    except UsageError as error:
        print(error)
        return 2
    except NvmlError as error:
        print(f"Unable to complete the request: {error}" if error.code == IN_USE else f"NVIDIA-SMI has failed: {error}")
        return error.code
    sys.stdout.write(text)
    return 0
