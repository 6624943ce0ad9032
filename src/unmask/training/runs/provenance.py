"""The origin of a run, provenance.json: versions, command, machine, and fingerprints of all inputs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from unmask.support.fingerprint import differences, versions

LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors")


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """provenance.json: the origin of a run.

    Attributes:
        unmask, python, platform, libraries: versions.
        command: the command line.
        machine: machine that the run was last computed on, with `matmul_flops_per_second` if it was measured.
        inputs: fingerprints of the inputs.
    """

    unmask: str
    command: list[str]
    python: str
    platform: str
    libraries: dict[str, str]
    machine: dict[str, Any]
    inputs: dict[str, str]

    @classmethod
    def of_this_process(cls, inputs: Mapping[str, str], machine: Mapping[str, Any]) -> Provenance:
        """Return the origin of a run that this process starts."""
        libraries = versions(LIBRARIES)
        return cls(
            unmask=libraries.pop("unmask"),
            command=[word.encode("utf8", "backslashreplace").decode() for word in sys.argv],
            python=platform.python_version(),
            platform=platform.platform(),
            libraries=libraries,
            machine=dict(machine),
            inputs=dict(inputs),
        )

    def other_versions(self) -> list[str]:
        """Return which versions are not those of this process, such as "torch was 2.12.0, now 2.13.0"."""
        return differences({"unmask": self.unmask, **self.libraries}, versions(LIBRARIES))
