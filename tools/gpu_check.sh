#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One visit to a machine with a Hopper GPU: GPU tests, benchmarks, and compute-sanitizer when asked.
#
#   tools/gpu_check.sh OUT [STAGE..]     stages: info tests attention quantize verify sanitize python
#                                        (default: all but sanitize and python)
#
# Runs the binaries of build/cuda (BUILD=.. for another folder), which may have been built elsewhere:
# shared libraries they need are looked for in $BUILD/lib too. Logs and JSON go into the folder OUT; each
# stage has its own time limit, so that one that hangs costs no other its result. Tests and sanitizers share
# the machine: tests run in SHARDS (4) parts at once, since the CPU's side of a comparison takes their time.
# Ends with a table.
set -u
out=${1:?usage: tools/gpu_check.sh OUT [STAGE..]}
shift
[ $# -gt 0 ] && stages=("$@") || stages=(info tests attention quantize verify)
cd "$(dirname "$0")/.."
build=${BUILD:-build/cuda}
octavo=$build/cli/octavo
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out"
: >"$out/summary.txt"

# stage NAME SECONDS COMMAND..: runs it into OUT/NAME.log and adds a line to the table.
stage() {
  local name=$1 limit=$2 start=$SECONDS rc
  shift 2
  timeout -k 10 "$limit" "$@" >"$out/$name.log" 2>&1
  rc=$?
  [ $rc -eq 0 ] || printf -- '--- %s\n%s\n' "$name" "$(tail -n 25 "$out/$name.log")"
  printf '%-28s rc %-4s %4s s  %s\n' "$name" $rc $((SECONDS - start)) \
    "$(tail -n 1 "$out/$name.log" | cut -c1-90)" >>"$out/summary.txt"
}

run_info() {
  stage info 60 bash -c "$octavo info; nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit,temperature.gpu --format=csv"
}

run_tests() {
  local shards=${SHARDS:-4} test part
  for test in "$build"/tests/*_gpu_test; do
    for ((part = 0; part < shards; ++part)); do
      stage "$(basename "$test")_$part" "${TEST_LIMIT:-300}" \
        env GTEST_TOTAL_SHARDS="$shards" GTEST_SHARD_INDEX=$part "$test" --gtest_brief=1 &
    done
  done
  wait
}

# The 36 points of the FlashAttention papers, and PyTorch's cuDNN attention in BF16 at the same ones.
run_attention() {
  nvidia-smi --query-gpu=clocks.sm,power.draw --format=csv,noheader -lms 200 >"$out/attention_clocks.csv" 2>/dev/null &
  local sampler=$!
  stage bench_attention 120 "$octavo" bench gpu --reps 20 --json "$out/attention.json"
  # The default recipe end to end, against the same peer.
  stage bench_default 60 "$octavo" bench gpu --reps 20 --json "$out/attention_default.json" \
    "b4 s4096 h32 d64" "b2 s8192 h32 d64" "b1 s16384 h32 d64" "b4 s4096 h16" "b2 s8192 h16" "b1 s16384 h16"
  local points=() d mask s
  for d in 64 128 256; do for mask in "" causal; do for s in 512 1024 2048 4096 8192 16384; do
    points+=("b$((16384 / s)) s$s h$((2048 / d)) d$d $mask recipe=block softmax=direct")
  done; done; done
  stage bench_direct 120 "$octavo" bench gpu --reps 20 --json "$out/attention_direct.json" "${points[@]}"
  stage bench_bf16 120 "$octavo" bench gpu --reps 20 --json "$out/attention_bf16.json" \
    "${points[@]/recipe=block softmax=direct/precision=bf16}"
  stage bench_direct_default 60 "$octavo" bench gpu --reps 20 --json "$out/attention_direct_default.json" \
    "b16 s1024 h32 d64 softmax=direct" "b4 s4096 h32 d64 softmax=direct" "b2 s8192 h32 d64 softmax=direct" \
    "b1 s16384 h32 d64 softmax=direct" "b16 s1024 h16 softmax=direct" "b4 s4096 h16 softmax=direct" \
    "b2 s8192 h16 softmax=direct" "b1 s16384 h16 softmax=direct"
  stage bench_sdpa 120 python3 bench/sdpa_torch.py "$out/sdpa.json" --reps 20
  kill $sampler 2>/dev/null
  cat "$out"/bench_{attention,default,direct,bf16,direct_default,sdpa}.log
}

# While it runs, the SM clock is sampled: rates mean little without it.
run_quantize() {
  nvidia-smi --query-gpu=clocks.sm,power.draw --format=csv,noheader -lms 200 >"$out/quantize_clocks.csv" 2>/dev/null &
  local sampler=$!
  stage bench_quantize 120 "$octavo" bench quantize --reps 20 --json "$out/quantize.json"
  stage bench_quantize_rope 120 "$octavo" bench quantize --rope half --reps 20 --json "$out/quantize_rope.json"
  kill $sampler 2>/dev/null
  cat "$out/bench_quantize.log" "$out/bench_quantize_rope.log"
}

run_verify() {
  stage quantize_file 60 bash -c "set -e
    $octavo quantize examples/data/smollm2-135m.safetensors -o $out/sm90.safetensors --engine sm90
    $octavo quantize examples/data/smollm2-135m.safetensors -o $out/emulate.safetensors --engine emulate
    cmp $out/sm90.safetensors $out/emulate.safetensors && echo 'quantize: the GPU file equals the CPU file'"
  rm -f "$out"/sm90.safetensors "$out"/emulate.safetensors
  stage verify 120 "$octavo" verify --engine sm90 --against emulate "s1000 h2 causal" "sq300 sk1000 hq8 hkv2 d64" \
    "s700 d256 recipe=strict_causal causal" "s700 h2 recipe=block+e5m2 softcap=30"
}

run_sanitize() {
  local test tool filter
  for test in "$build"/tests/*_gpu_test; do
    for tool in memcheck synccheck racecheck; do
      filter="*Smoke*"
      [ $tool = racecheck ] || filter+=":*ChangeHandsAgree*"
      stage "${tool}_$(basename "$test")" "${SANITIZE_LIMIT:-400}" \
        compute-sanitizer --tool "$tool" --error-exitcode 9 "$test" --gtest_brief=1 --gtest_filter="$filter" &
    done
  done
  wait
}

# The package of $build/python, or another folder's that OCTAVO_PYTHON names, under the python3 that has PyTorch.
run_python() {
  export OCTAVO_PYTHON=${OCTAVO_PYTHON:-$build/python}
  export PYTHONPATH=$OCTAVO_PYTHON${PYTHONPATH:+:$PYTHONPATH}
  stage python_tests 240 python3 -m pytest -q -p no:cacheprovider tests/python/test_torch.py tests/python/test_torch_quantize.py tests/python/test_transformers.py \
    tests/python/test_diffusers.py
  stage python_calls 60 python3 bench/python_calls.py "$out/python_calls.json"
  stage llama 120 python3 bench/llama_torch.py --json "$out/llama.json"
  stage llama_bf16 120 python3 bench/llama_torch.py --precision bf16 --json "$out/llama_bf16.json"
  cat "$out"/{python_calls,llama,llama_bf16}.log
}

for name in "${stages[@]}"; do "run_$name"; done
cat "$out/summary.txt"
! grep -qE '^[^ ]+ +rc [1-9]' "$out/summary.txt"  # the name's column: a log's last line may say rc, too
