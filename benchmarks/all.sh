#!/bin/sh
# Every benchmark, one after the other; those that were cut off go on. Usage: benchmarks/all.sh [PYTHON]
set -e
cd "$(dirname "$0")/.."
python=${1:-python}
$python benchmarks/sentences.py
$python benchmarks/pretrain_mini.py
$python benchmarks/sst2.py --start minilm
$python benchmarks/sst2.py --start random
$python benchmarks/adapt_minilm.py
