#!/bin/sh
# Every benchmark, one after the other; what has been interrupted is resumed. Usage: benchmarks/all.sh [PYTHON]
set -e
cd "$(dirname "$0")/.."
python=${1:-python}
for name in serving sentences corpus start pretrain_speed finetune_speed step_profile loss_parity inference; do
    $python benchmarks/$name.py
done
$python benchmarks/pretrain.py minutes changes sizes passes curriculum
$python benchmarks/pretrain.py passes --budget tokens=1_600_000
$python benchmarks/pretrain.py passes --budget tokens=12_800_000
$python benchmarks/pretrain.py pretrain_mini adapt_minilm chinese chinese_default pretraining_pays plateau lengths family
$python benchmarks/pretrain.py distillation published
$python benchmarks/pretrain.py family --cost
$python benchmarks/several_tasks.py
for file in benchmarks/comparisons/*.toml; do
    $python benchmarks/compare.py "$(basename "$file" .toml)"
done
for file in benchmarks/finetuning/*.toml; do
    $python benchmarks/finetune.py "$(basename "$file" .toml)"
done
