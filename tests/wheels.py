"""Which versions of the dependencies have wheels for the platforms and versions of Python that unmask is for.

`make wheels` prints a table, and fails if a dependency has none: a user there would need compilers. It asks pip for the
versions with a wheel, and downloads none.
"""

import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LINUX = [f"manylinux_2_{minor}_aarch64" for minor in (35, 31, 28, 27, 26, 24, 17)] + ["manylinux2014_aarch64"]
PLATFORMS = {
    "Linux, aarch64": LINUX,
    "macOS, arm64": ["macosx_14_0_arm64"],
    "Windows, amd64": ["win_amd64"],
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LISTED = "Available versions: "
DEVELOPMENT = ("test", "docs", "bench")
"""Extras that only those who work on unmask install."""


def dependencies():
    """Return the requirements of unmask and its extras, without repetitions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    extras = (wanted for name, wanted in project["optional-dependencies"].items() if name not in DEVELOPMENT)
    return list(dict.fromkeys([*project["dependencies"], *(one for wanted in extras for one in wanted)]))


def newest(requirement, platform, python):
    """Return the newest allowed version with a wheel, or None, and the last line of what pip printed."""
    wanted = Requirement(requirement)
    command = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", wanted.name]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    command += [word for tag in PLATFORMS[platform] for word in ("--platform", tag)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf8")
    listed = next((line for line in done.stdout.splitlines() if line.startswith(LISTED)), "")
    versions = [Version(version) for version in listed.removeprefix(LISTED).split(", ") if version]
    allowed = list(wanted.specifier.filter(versions))
    if allowed:
        return str(max(allowed)), ""
    found = f"only {', '.join(map(str, versions[:5]))}" if versions else done.stderr.strip().splitlines()[-1]
    return None, found


def main():
    """Print the table; return 1 if a wheel is missing."""
    wanted, cells = dependencies(), list(product(PLATFORMS, PYTHONS))
    asked = [(one, platform, python) for one in wanted for platform, python in cells]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(asked, pool.map(lambda one: newest(*one), asked), strict=True))
    width = max(map(len, wanted))
    for platform in PLATFORMS:
        print(f"{platform:{width}}", *(f"{python:>12}" for python in PYTHONS))
        for one in wanted:
            versions = (found[one, platform, python][0] or "-" for python in PYTHONS)
            print(f"{one:{width}}", *(f"{version:>12}" for version in versions))
        print()
    missing = {key: reason for key, (version, reason) in found.items() if version is None}
    for key, reason in missing.items():
        print(*key, reason, sep=": ", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
