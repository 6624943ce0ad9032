#!/bin/sh
# Every benchmark, one after the other; what has been interrupted is resumed. Usage: benchmarks/all.sh [PYTHON]
set -e
cd "$(dirname "$0")/.."
python=${1:-python}
for name in serving sentences corpus start pretrain_speed finetune_speed step_profile loss_parity inference; do
    $python benchmarks/$name.py
done
$python benchmarks/several_tasks.py
$python benchmarks/trainer_finetune.py
$python benchmarks/trainer.py
for name in adapting lengths minutes family; do # others start from their models
    $python benchmarks/compare.py $name
done
for file in benchmarks/comparisons/*.toml; do
    $python benchmarks/compare.py "$(basename "$file" .toml)"
done
for budget in 1.6Mtok 12.8Mtok; do
    $python benchmarks/compare.py passes --budget $budget
done
for budget in 6Mtok 20Mtok; do
    $python benchmarks/compare.py sizes --budget $budget
done
$python benchmarks/ngram.py
