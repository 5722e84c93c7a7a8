#!/usr/bin/env bash
# Everything that needs a GPU, in one run of under 8 minutes: bench/gpu.sh [--dry-run] [--build FOLDER] [--output FOLDER]
#   builds (or takes FOLDER as built), runs the conformance tests of device and engine, the kernels' and the driver's tests on cuda:0, the memory,
#   race and barrier checkers where they are installed, the link's rates, and the engine streaming 24 GB, which has to reach 97 % of the pinned rate measured in the
#   same run. Then a model of Qwen2.5-7B's shape with random weights, device memory capped: by transformers and accelerate (where they are
#   installed; bench/gpu_accelerate.py), by ofload-batch with as many sequences, and by ofload-batch as it plans itself, in one table. Writes
#   bench/results/gpu-NAME-DATE.md.
# --dry-run, and by itself where there is no GPU: every step on the stand-in runtime of tests/fakecuda, with less to stream. The report says so
#   in its first line, goes to standard output, and to a file only with --output. Nothing in it is a measurement of a GPU.
# Environment: SHAPE (mkmodel's options), CAP, SEQUENCES, PROMPT, NEW of the comparison; MODEL, a file kept between runs; OFLOAD_PYTHON.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dry='' build=$root/build-gpu built='' output='' limit=470
while [ $# -gt 0 ]; do
    case "$1" in
    --dry-run) dry=1 ;;
    --build) build=${2:?--build needs a folder} built=1; shift ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    *) sed -n '2,12p' "${BASH_SOURCE[0]}"; exit 2 ;;
    esac
    shift
done
has_gpu() { [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; }
[ -z "$built" ] || build=$(cd "$build" && pwd)
[ -n "$dry" ] || has_gpu || { dry=1; echo "gpu.sh: no GPU here: a dry run on the stand-in" >&2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 steps=''
# step SECONDS TITLE COMMAND…: its output into $work/N; no step goes beyond what is left of the whole.
step() {
    local most=$1 title=$2 left=$((limit - SECONDS)) start=$SECONDS code=0
    shift 2
    if [ "$left" -le 5 ]; then
        failed=1 steps+="| $title | not run: out of time | |"$'\n'
        echo "gpu.sh: $title: not run: out of time" >&2
        return
    fi
    [ "$most" -le "$left" ] || most=$left
    echo "gpu.sh: $title" >&2
    timeout -k 5 "$most" "$@" >"$work/out" 2>&1 || code=$?
    case $code in
    0) code=passed ;;
    77) code=skipped ;;
    124 | 137) code="FAILED: over $most s" failed=1 ;;
    *) code="FAILED: exit status $code" failed=1 ;;
    esac
    steps+="| $title | $code | $((SECONDS - start)) s |"$'\n'
    cp "$work/out" "$work/$(tr -c 'a-z0-9\n' - <<<"$title")"
    [[ $code != FAILED* ]] || tail -n 20 "$work/out" >&2
}
output_of() { cat "$work/$(tr -c 'a-z0-9\n' - <<<"$1")" 2>/dev/null || true; }
figure_most() { sed -n "s/.*\"$1\":[[:space:]]*\([-0-9.e+]*\).*/\1/p" | sort -g | tail -n 1; }
figure() { sed -n "s/.*\"$1\":[[:space:]]*\([-0-9.e+]*\).*/\1/p" | head -n 1; }

build_all() { # kernels for the device that is here alone: a sixth of the time
    local here
    here=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
    cmake -S "$root" -B "$build" -DOFLOAD_CUDA=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo ${here:+-DOFLOAD_CUDA_ARCHITECTURES="$here"}
    cmake --build "$build" -j "$(nproc)" --target test_device test_engine_cuda test_engine_streams test_batch_kernels_gpu test_batch_forward_cuda \
        ofload-bench ofload-batch ofload-plan ofload_fakecuda ofload_fakecublas ofload-batch-standin test_batch_forward_standin
}
export -f build_all
export root build

[ -n "$built" ] || step 240 build bash -euc build_all
export OFLOAD_TEST_DEVICE=cuda:0
weights=6GB batch=$build/bin/ofload-batch forward_test=$build/bin/test_batch_forward_cuda
shape=${SHAPE:---architecture qwen2 --layers 28 --hidden 3584 --heads 28 --kv-heads 4 --ffn 18944 --vocab 152064}
cap=${CAP:-8GB} sequences=${SEQUENCES:-32} prompt=${PROMPT:-128} new=${NEW:-16}
if [ -n "$dry" ]; then
    export LD_LIBRARY_PATH=$build/tests/fakecuda OFLOAD_TEST_DEVICE_NEEDED=1 CUDA_VISIBLE_DEVICES=0,1
    export OFLOAD_FAKECUDA_SPEC="sim:vram=1GB,h2d=300MB/s,runtime=1MB"
    weights=96MB batch=$build/bin/ofload-batch-standin forward_test=$build/bin/test_batch_forward_standin
    shape=${SHAPE:---architecture qwen2 --layers 6 --hidden 256 --heads 4 --kv-heads 2 --ffn 768 --vocab 512}
    cap=${CAP:-10MB} sequences=${SEQUENCES:-4} prompt=${PROMPT:-20} new=${NEW:-4}
fi
step 60 'device conformance' "$build/bin/test_device"
step 60 'engine conformance' "$build/bin/test_engine_cuda"
step 60 'streams, graphs, devices' "$build/bin/test_engine_streams"
if [ -z "$dry" ]; then step 60 kernels "$build/bin/test_batch_kernels_gpu"; fi
step 120 'the forward pass' "$forward_test"
step 90 'the driver' bash "$root/tests/fakecuda/test_batch_standin.sh" "$root" "$build" "$([ -n "$dry" ] || echo gpu)"
if command -v compute-sanitizer >/dev/null && [ -z "$dry" ]; then
    step 60 'memory checker' compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bin/test_engine_streams"
    step 90 'memory checker, kernels' compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bin/test_batch_kernels_gpu"
    step 60 'race checker, kernels' env OFLOAD_TEST_SEEDS=4 compute-sanitizer --tool racecheck --error-exitcode 9 "$build/bin/test_batch_kernels_gpu"
    step 45 'barrier checker, kernels' env OFLOAD_TEST_SEEDS=4 compute-sanitizer --tool synccheck --error-exitcode 9 "$build/bin/test_batch_kernels_gpu"
else
    steps+="| memory checker | not run: $([ -n "$dry" ] && echo "it needs a GPU" || echo "compute-sanitizer is not installed") | |"$'\n'
fi
step 90 link "$build/bin/ofload-bench" link --device cuda:0 --json
# A sixth of the weights resident, the rest streamed in each of five steps: at least 24 GB.
step 150 stream "$build/bin/ofload-bench" stream --device cuda:0 --weights "$weights" --resident 18 --compute 0.1 --steps 5 --json

# ---- the same shape by the usual Python route and by ofload-batch, under the same cap ----
bytes_of() { numfmt --from=si "${1%B}"; }
rate=$(output_of link | { grep -A 4 '"pinned to device' || true; } | figure_most bytes_per_second)
model=${MODEL:-$work/model.gguf}
# shellcheck disable=SC2086
[ -e "$model" ] || step 120 'model' "$build/bin/ofload-bench" mkmodel $shape --context 4096 --type bf16 --output "$model"
python_shape=$(sed -e 's/--architecture [a-z0-9]*//; s/--vocab /--vocabulary /' <<<"$shape")
# shellcheck disable=SC2086
step 120 'transformers and accelerate' "${OFLOAD_PYTHON:-python3}" "$root/bench/gpu_accelerate.py" $python_shape --cap-bytes "$(bytes_of "$cap")" \
    --sequences "$sequences" --prompt "$prompt" --new "$new" --link-bytes-per-second "${rate:-0}"
requests() { # N: each of `prompt` tokens (of one byte), all of whose answers are as long as they may be
    local i
    for i in $(seq 1 "$1"); do
        printf '{"custom_id":"r%d","method":"POST","url":"/v1/completions","body":{"model":"any","prompt":"%s","max_tokens":%d,"temperature":0,"ignore_eos":true}}\n' \
            "$i" "$(printf '%*d' "$prompt" "$i")" "$new"
    done
}
requests "$sequences" >"$work/few.jsonl"
requests $((sequences * 8)) >"$work/many.jsonl"
common="--device cuda:0 --model $model --vram $cap --no-progress --overwrite"
# shellcheck disable=SC2086
step 120 'ofload-batch, as many sequences' "$batch" $common --input "$work/few.jsonl" --sequences "$sequences" --output "$work/few.out" --report "$work/few.json"
# shellcheck disable=SC2086
step 120 'ofload-batch, as it plans' "$batch" $common --input "$work/many.jsonl" --output "$work/many.out" --report "$work/many.json"

# row TITLE FILE: of the table; figures that a route does not have are left out.
row() {
    python3 - "$1" "$2" <<'END'
import json, sys
title, path = sys.argv[1:]
try:
    r = json.loads([line for line in open(path).read().splitlines() if line.startswith("{")][-1]) if path.endswith("accelerate") else json.load(open(path))
except (OSError, IndexError, ValueError):
    print(f"| {title} | – | – | – | – | – |")
    sys.exit()
show = lambda value, form: "–" if value is None else form.format(value)
if "route" in r:
    cells = [show(r["tokens_per_second"], "{:.1f}"), show(r["link_share"], "{:.2f}"), "–", "–", show(r["peak_device_bytes"], "{:,}")]
else:
    cells = [show(r["measured"]["tokens_per_second"], "{:.1f}"), show(r["measured"]["link_utilization"], "{:.2f}"),
             show(r["forecast"].get("tokens_per_second"), "{:.1f}"), show(r["error_percent"], "{:+.1f} %"), show(r["peak_device_bytes"], "{:,.0f}")]
print("| " + " | ".join([title] + cells) + " |")
END
}
table() {
    echo "| route | tokens/s | link share | forecast tokens/s | error | peak device bytes |"
    echo "| --- | --- | --- | --- | --- | --- |"
    row "transformers + accelerate, $sequences sequences" "$work/transformers-and-accelerate"
    row "ofload-batch, $sequences sequences" "$work/few.json"
    row "ofload-batch, as it plans, $((sequences * 8)) requests" "$work/many.json"
}

share=$(output_of stream | figure link_share)
reached=no
if [ -n "$share" ] && awk -v s="$share" 'BEGIN { exit !(s >= 0.97) }'; then reached=yes; fi
[ $reached = yes ] || [ -n "$dry" ] || failed=1
name=$(output_of link | sed -n 's/.*"device":[[:space:]]*"\([^"]*\)".*/\1/p' | head -n 1)
today=$(date -u +%Y-%m-%d)

report() {
    [ -z "$dry" ] || echo "**DRY RUN on the stand-in runtime (tests/fakecuda): every step was tried, no GPU was measured.**"
    echo "# GPU run of $today: ${name:-unknown device}"
    echo
    echo "- device: ${name:-unknown}"
    if [ -z "$dry" ]; then
        nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,pci.bus_id,pcie.link.gen.max,pcie.link.width.max --format=csv |
            sed 's/^/- /' || true
    else
        echo "- runtime: stand-in, $OFLOAD_FAKECUDA_SPEC"
    fi
    echo "- source: $(git -C "$root" describe --always --dirty 2>/dev/null || echo "not under git"); host: $(uname -sr), $(nproc) CPUs"
    echo "- streamed at ${share:-no} of the pinned rate measured in the same run; 0.97 reached: $reached"
    echo "- whole run: $SECONDS s; all steps passed: $([ $failed = 0 ] && echo yes || echo no)"
    printf '\n| step | result | time |\n| --- | --- | --- |\n%s' "$steps"
    printf '\n## One shape, %s of device memory: %s\n\nPrompts of %s tokens, %s new ones.\n\n' "$cap" "$shape" "$prompt" "$new"
    table
    printf '\n%s\n' "The cap holds for all that a route takes: for transformers and accelerate torch's allocator gets it less what the CUDA context and its libraries take when the run begins (that is in their peak too)."
    [ -s "$work/transformers-and-accelerate" ] && ! grep -q '"gpu": true' "$work/transformers-and-accelerate" && printf '\n%s\n' "$(output_of 'transformers and accelerate')"
    for title in link stream; do printf '\n## %s\n\n```json\n%s\n```\n' "$title" "$(output_of "$title")"; done
}
[ -n "$dry" ] || output=${output:-$root/bench/results}
if [ -z "$output" ]; then
    report
else
    mkdir -p "$output"
    file=$output/gpu-$(tr -cs 'A-Za-z0-9\n' - <<<"${name:-unknown}")-$today.md
    [ -z "$dry" ] || file=${file%.md}-dry-run.md
    report >"$file"
    echo "gpu.sh: $file"
fi
exit $failed
