"""Small file systems in memory: disks that are full, and have room again."""

import subprocess

import pytest


def enlarge(path, size=1 << 17):
    """Give a file system room for some kibibytes."""
    subprocess.run(["mount", "-o", f"remount,size={size}k", path], check=True)


@pytest.fixture
def volume(tmp_path):
    """A function that mounts an empty file system of some kibibytes."""
    mounted = []

    def mount(size):
        path = tmp_path / f"volume-{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", path]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            pytest.skip(f"there is no program to mount with ({error})")
        if done.returncode:
            pytest.skip(f"mounting is not allowed here ({done.stderr.strip()})")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", path], check=True)  # files that are mapped stay open
