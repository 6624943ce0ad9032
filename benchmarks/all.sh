#!/bin/sh
# Every benchmark, one after the other; those that were cut off go on. Usage: benchmarks/all.sh [PYTHON]
set -e
cd "$(dirname "$0")/.."
python=${1:-python}
$python benchmarks/sentences.py
$python benchmarks/corpus.py
$python benchmarks/pretrain_mini.py
$python benchmarks/pretrain_speed.py
$python benchmarks/finetuning_rule.py --data sst2 --examples 12000 --factors 0.5 1 2
$python benchmarks/finetuning_rule.py --data sst2 --examples 70000 --factors 1 --passes 1 2
$python benchmarks/sst2.py --start minilm
$python benchmarks/sst2.py --start random
$python benchmarks/adapt_minilm.py
