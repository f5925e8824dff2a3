#!/usr/bin/env bash
# The whole job on one card, about four minutes of its time, everything under one folder.
#
#   validation/run_h100.sh OUT [options of measure and replay, such as --model llama-3-8b or --fake]
#
# Needs python3 with torch, triton, numpy, scipy, pandas and simpy (3.11 or 3.12); no install of this repository.
# simpy is the one that GPU images lack: WHEELS=FOLDER installs it from wheels that were carried along.
# MINUTES bounds the sweep (default 1.5). Run again with the same OUT it goes on where it stopped.
set -euo pipefail
out=${1:?usage: validation/run_h100.sh OUT [options]}
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
fake=()
for word in "$@"; do [ "$word" = --fake ] && fake=(--fake); done

if ! "$python" -c 'import simpy' 2>/dev/null; then
    from=()
    [ -n "${WHEELS:-}" ] && from=(--no-index --find-links "$WHEELS")
    "$python" -m pip install -q --no-deps --target "$out/packages" "${from[@]}" simpy
    export PYTHONPATH="$out/packages${PYTHONPATH:+:$PYTHONPATH}"
fi
export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$out/triton-cache}
run() { echo "== $*" && "$python" -m validation "$@" 2>>"$out/progress.log"; }

{
    date -u
    # Most of this is compilation: one process for each type.
    run check --dtypes bfloat16 "${fake[@]}" >"$out/check-bfloat16.txt" 2>&1 &
    other=$!
    run check --dtypes float16 "${fake[@]}"
    wait "$other" || { cat "$out/check-bfloat16.txt"; exit 1; }
    tail -n 1 "$out/check-bfloat16.txt"
    run measure --out "$out" --minutes "${MINUTES:-1.5}" "$@"
    run fit --out "$out"
    run replay sharegpt --out "$out" --requests 100 --systems vllm,orca-max --max-num-seqs 64 "$@"
    run replay sharegpt --out "$out" --requests 24 --systems static --batch-size 12 "$@"
    run replay sharegpt --out "$out" --requests 5 --systems naive "$@"
    run report --out "$out"
    date -u
} 2>&1 | tee "$out/log.txt"
