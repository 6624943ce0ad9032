#!/bin/sh
# Install a wheel in a new virtual environment and use it, far from the checkout: sh tests/smoke.sh WHEEL [PYTHON]
# With SYSTEM=1 the packages that are installed already (torch, ...) are visible in it, and only the wheel is installed.
set -eu
wheel=$(realpath "$1")
python=${2:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ "${SYSTEM:-}" = 1 ]; then
    "$python" -m venv --system-site-packages "$folder/venv"
    parent=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    own=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "$parent" > "$own/parent.pth" # $python may itself be that of a virtual environment
    "$folder/venv/bin/python" -m pip install --quiet --no-deps --force-reinstall "$wheel"
else
    "$python" -m venv "$folder/venv"
    "$folder/venv/bin/python" -m pip install --quiet "$wheel"
fi
cd "$folder"
unset PYTHONPATH
"$folder/venv/bin/python" -c "import unmask; assert '$folder' in unmask.__file__, unmask.__file__"
unmask="$folder/venv/bin/unmask"
"$unmask" --help > /dev/null
"$unmask" --version
"$unmask" recipes list > /dev/null
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
    printf 'The dog sees the cat near the river. The cat likes the old bridge.\n\nA teacher reads. The letter is new.\n\n'
done > text.txt
"$unmask" pretrain bert-tiny --text text.txt --set tokenizer.vocabulary=60 --set layout.length=16 \
    --set budget.steps=2 --quiet --out encoder
"$unmask" fill --model encoder "The [MASK] sees the cat." --json > /dev/null
echo "the wheel works"
