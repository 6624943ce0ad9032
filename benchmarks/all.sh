#!/bin/sh
# Every benchmark, one after the other; those that were cut off go on. Usage: benchmarks/all.sh [PYTHON]
set -e
cd "$(dirname "$0")/.."
python=${1:-python}
$python benchmarks/sentences.py
$python benchmarks/corpus.py
$python benchmarks/pretrain_mini.py
$python benchmarks/pretrain_speed.py
$python benchmarks/pretrain_speed.py --cases base-full128-bf16-0.1 --steps 5 --rounds 1
$python benchmarks/step_profile.py
$python benchmarks/loss_parity.py
$python benchmarks/finetune_speed.py
$python benchmarks/start.py
$python benchmarks/finetuning_rule.py --data sst2 --examples 12000 --factors 0.5 1 2
$python benchmarks/finetuning_rule.py --data sst2 --examples 70000 --factors 1 --passes 1 2
$python benchmarks/sst2.py --start minilm
$python benchmarks/sst2.py --start random
$python benchmarks/pairs.py --start minilm
$python benchmarks/pairs.py --start random
$python benchmarks/pairs.py --start pooler-anew --sets sick-entailment
$python benchmarks/token_classification.py --start minilm
$python benchmarks/token_classification.py --start random
$python benchmarks/question_answering.py --variant always
$python benchmarks/question_answering.py --variant none
$python benchmarks/question_answering.py --variant always --start random
$python benchmarks/chinese.py --cmrc
$python benchmarks/token_classification.py --data resume_zh --start runs/chinese/bert-mini-zh
$python benchmarks/token_classification.py --data resume_zh --start random --body runs/chinese/bert-mini-zh
$python benchmarks/adapt_minilm.py
$python benchmarks/pretraining_pays.py
$python benchmarks/plateau.py
$python benchmarks/family.py
$python benchmarks/family.py --cost
$python benchmarks/features.py
