#!/bin/bash
# The measurements that want an accelerator, a part a call: each ends within ten minutes on an H200 with 16 cores.
#
#     bash benchmarks/accelerator.sh FOLDER larochelle     the sets of 2007 that were missed, by Algorithm 1
#     bash benchmarks/accelerator.sh FOLDER labels         what pre-training gains with few labels
#     bash benchmarks/accelerator.sh FOLDER optimisers     vSGD untouched; the rates of a re-estimation run
#
# Results lie in FOLDER as JSON and logs. GRADWISE_DATA names the folder of data sets. What follows `larochelle` says
# which sets, learners and numbers of examples: SET:LEARNER:EXAMPLES.
set -u
out=$1 part=$2
shift 2
mkdir -p "$out"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
python=${PYTHON:-python3}
nvidia-cuda-mps-control -d 2>/dev/null || echo "no MPS: processes take turns"

# Tells how each process stands every minute, until all have ended.
watch_all() {
    while [ -n "$(jobs -rp)" ]; do
        sleep 20
        for log in "$out"/*.log; do echo "$(basename "$log"): $(tail -n 1 "$log" | cut -c 1-160)"; done
    done
    wait
}

case $part in
larochelle)
    sets=$(mktemp -d)
    "$python" benchmarks/larochelle.py make --out "$sets" --only back-rand rectangles rectangles-image
    [ $# -gt 0 ] || set -- back-rand:rbm:4e6 back-rand:denoising:2e6 rectangles-image:denoising:2e6 \
        rectangles-image:rbm:2e6 rectangles:denoising:1e6 rectangles:rbm:1e6
    for one in "$@"; do
        IFS=: read -r set learner examples <<<"$one"
        "$python" benchmarks/pretraining.py --data "$sets" --sets "$set" --learners "$learner" \
            --examples "$examples" --out "$out/$set-$learner.json" >"$out/$set-$learner.log" 2>&1 &
    done
    ;;
labels)
    for learner in denoising contractive; do
        "$python" benchmarks/few_labels.py choose --learner $learner --out "$out/$learner.json" >"$out/$learner.log" 2>&1 &
    done
    watch_all
    for first in 0 5; do
        "$python" benchmarks/few_labels.py measure --chosen "$out/denoising.json" "$out/contractive.json" --first $first \
            --seeds 5 --labels 100 1000 --out "$out/labels-$first.json" >"$out/labels-$first.log" 2>&1 &
    done
    watch_all
    "$python" benchmarks/few_labels.py join "$out/labels-0.json" "$out/labels-5.json" --out "$out/few_labels.json"
    ;;
optimisers)
    "$python" benchmarks/vsgd.py --out "$out/vsgd.json" >"$out/vsgd.log" 2>&1 &
    "$python" benchmarks/reestimation.py --out "$out/reestimation.json" >"$out/reestimation.log" 2>&1 &
    ;;
*)
    echo "no part named $part: larochelle, labels or optimisers" >&2
    exit 2
    ;;
esac
watch_all
tail -n 5 "$out"/*.log
