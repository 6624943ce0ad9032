#!/bin/sh
# Prepares build/arm: Debian's Python for arm64 and the wheels that need no torch, which qemu-aarch64 runs.
#
# Debian 12, and once, as root: dpkg --add-architecture arm64 && apt-get update
# Usage: emulated_arm.sh PYTHON; after it, --exhaustive does not skip the tests of ARM in tests/processors/test_emulated*.py.
set -eu

PYTHON=$1
FOLDER=build/arm
VERSION=3.11
DEBIAN="python$VERSION-minimal libpython$VERSION-minimal libpython$VERSION-stdlib libc6 libgcc-s1 libstdc++6 zlib1g
libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libcrypt1"
WHEELS="numpy tokenizers safetensors msgspec tomli-w rich filelock sentencex onnx onnxruntime
markdown-it-py mdurl pygments protobuf ml_dtypes typing_extensions packaging flatbuffers"

rm -rf $FOLDER
mkdir -p $FOLDER/debian $FOLDER/root
for package in $DEBIAN; do
    (cd $FOLDER/debian && apt-get download -qq "$package:arm64")
done
for package in $FOLDER/debian/*.deb; do
    dpkg -x "$package" $FOLDER/root
done
platforms=""
for tag in manylinux_2_28 manylinux_2_27 manylinux_2_26 manylinux_2_24 manylinux_2_17 manylinux2014; do
    platforms="$platforms --platform ${tag}_aarch64"
done
# shellcheck disable=SC2086
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --implementation cp \
    --python-version $VERSION $platforms --target $FOLDER/site -c constraints.txt $WHEELS
# onnxruntime ends where the description of the processor is that of another architecture
mkdir -p $FOLDER/root/proc
for number in 0 1; do
    printf 'processor\t: %s\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid\n' $number
    printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n\n'
done >$FOLDER/root/proc/cpuinfo
touch $FOLDER/ready
