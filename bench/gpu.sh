#!/usr/bin/env bash
# Everything that needs a GPU, in one run of under 8 minutes: bench/gpu.sh [--dry-run] [--build FOLDER] [--output FOLDER]
#   builds (or takes FOLDER as built), runs the conformance tests of device and engine on cuda:0, the memory checker where it is installed,
#   the link's rates, and the engine streaming 24 GB, which has to reach 97 % of the pinned rate measured in the same run. Writes
#   bench/results/gpu-NAME-DATE.md.
# --dry-run, and by itself where there is no GPU: every step on the stand-in runtime of tests/fakecuda, with less to stream. The report says so
#   in its first line, goes to standard output, and to a file only with --output. Nothing in it is a measurement of a GPU.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dry='' build=$root/build-gpu built='' output='' limit=470
while [ $# -gt 0 ]; do
    case "$1" in
    --dry-run) dry=1 ;;
    --build) build=${2:?--build needs a folder} built=1; shift ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    *) sed -n '2,8p' "${BASH_SOURCE[0]}"; exit 2 ;;
    esac
    shift
done
has_gpu() { [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1; }
[ -n "$dry" ] || has_gpu || { dry=1; echo "gpu.sh: no GPU here: a dry run on the stand-in" >&2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 steps=''
# step SECONDS TITLE COMMAND…: its output into $work/N; no step goes beyond what is left of the whole.
step() {
    local most=$1 title=$2 left=$((limit - SECONDS)) start=$SECONDS code=0
    shift 2
    [ "$left" -gt 5 ] || left=5
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
figure() { sed -n "s/.*\"$1\":[[:space:]]*\([-0-9.e+]*\).*/\1/p" | head -n 1; }

build_all() {
    cmake -S "$root" -B "$build" -DOFLOAD_CUDA=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo
    cmake --build "$build" -j "$(nproc)" --target test_device test_engine_cuda test_engine_streams ofload-bench ofload_fakecuda
}
export -f build_all
export root build

[ -n "$built" ] || step 240 build bash -euc build_all
export OFLOAD_TEST_DEVICE=cuda:0
weights=6GB
if [ -n "$dry" ]; then
    export LD_LIBRARY_PATH=$build/tests/fakecuda OFLOAD_TEST_DEVICE_NEEDED=1 CUDA_VISIBLE_DEVICES=0,1
    export OFLOAD_FAKECUDA_SPEC="sim:vram=1GB,h2d=300MB/s,runtime=1MB"
    weights=96MB
fi
step 60 'device conformance' "$build/bin/test_device"
step 60 'engine conformance' "$build/bin/test_engine_cuda"
step 60 'streams, graphs, devices' "$build/bin/test_engine_streams"
if command -v compute-sanitizer >/dev/null && [ -z "$dry" ]; then
    step 90 'memory checker' compute-sanitizer --tool memcheck --error-exitcode 9 "$build/bin/test_engine_streams"
else
    steps+="| memory checker | not run: $([ -n "$dry" ] && echo "it needs a GPU" || echo "compute-sanitizer is not installed") | |"$'\n'
fi
step 90 link "$build/bin/ofload-bench" link --device cuda:0 --json
# A sixth of the weights resident, the rest streamed in each of five steps: at least 24 GB.
step 150 stream "$build/bin/ofload-bench" stream --device cuda:0 --weights "$weights" --resident 18 --compute 0.1 --steps 5 --json

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
