#!/bin/sh
# All that only a GPU can show, on a machine with one: the tests, what a cohort costs
# against a replayed step, three rounds of FedCCFA's Table 1, and pfl-research's job.
# MNIST's four idx files and, for pfl's accuracy, cifar10.npz lie in CFL_DATA_DIR.
#   sh tests/benchmarks/gpu.sh [OUTPUT FOLDER]
out=${1:-$(mktemp -d)}
python3 -m pytest -q -m "gpu and not ray" -p no:cacheprovider tests/cfl_flower/learning tests/simulations/test_gpu.py
python3 -m tests.benchmarks gpu pfl
for strategy in fedavg ifca fedccfa; do
    python3 -m simulations.run experiment=fedccfa_table1 dataset=mnist model=fedccfa_cnn \
        strategy=$strategy engine=inprocess gpus_per_worker=1 rounds=31 \
        output_dir="$out/$strategy" >"$out/$strategy.txt" 2>&1
    python3 - "$out/$strategy/rounds.jsonl" <<'PROGRAM'
import json
import statistics
import sys

rounds = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
seconds = [each["seconds"] for each in rounds[2:]]
print(sys.argv[1], "a round, median s:", round(statistics.median(seconds), 3))
print("accuracy", rounds[-1].get("accuracy"))
PROGRAM
done
