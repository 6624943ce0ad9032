#!/bin/sh
# Every benchmark, one after the other; what has been interrupted is resumed. Usage: benchmarks/all.sh [PYTHON]
set -e
cd "$(dirname "$0")/.."
python=${1:-python}
for name in serving corpus start pretrain_speed finetune_speed step_profile loss_parity inference recurrence \
    quantization several_tasks trainer_finetune trainer labels suggest explanations no_labels \
    coverage outlook planted search many_gpus; do
    $python benchmarks/$name.py
done
$python benchmarks/reading.py --rows 1000000
$python benchmarks/compare.py adapting lengths minutes family scaling articles # others start from their models
$python benchmarks/compare.py
for budget in 1.6Mtok 12.8Mtok; do
    $python benchmarks/compare.py passes --budget $budget
done
for budget in 6Mtok 20Mtok; do
    $python benchmarks/compare.py sizes --budget $budget
done
$python benchmarks/few_labels.py logistic # setfit has to be installed first
$python benchmarks/pair_speed.py unmask # sentence-transformers needs the package datasets, to be installed first
