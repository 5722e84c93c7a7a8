#!/usr/bin/env bash
# Measures what bench/results holds, one file a step: bench/run.sh [--build FOLDER] [--output FOLDER] [STEP…]    (default: build, bench/results, all steps)
#   bound queue published      modelled or on the virtual clock: the same on every machine, seconds
#   plan front units load      what planning, the front, the engine's calls and loading cost: seconds each
#   link designs tokens        the simulated link; simpler ways of streaming beside this engine, by compute and by tokens: three minutes
#   replay                     a published experiment at full size: 18 GB of memory, five minutes
#   accuracy                   forecast against measurement, 33 points with kernels and with real products: twelve minutes
#   compare                    through PyTorch too; needs tools/setup.sh's install_compare
#   soak                       the driver for half an hour: not among the default steps
#   batch                      forecast against measurement of whole runs of ofload-batch on a small real model: two minutes
# On an idle machine: all but the first line are measured on the wall clock, and other load is in every figure. Then bench/tables.sh --write and bench/plot.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
all=(bound queue published plan front units load link designs tokens replay accuracy compare batch)
build=$root/build output=$root/bench/results steps=()
while [ $# -gt 0 ]; do
    case "$1" in
    --build) build=${2:?--build needs a folder}; shift ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    -*) sed -n '2,12p' "${BASH_SOURCE[0]}"; exit 2 ;;
    *)
        [[ " ${all[*]} soak " = *" $1 "* ]] || { echo "run.sh: there is no step \"$1\"; there are: ${all[*]}" >&2; exit 2; }
        steps+=("$1")
        ;;
    esac
    shift
done
[ ${#steps[@]} -gt 0 ] || steps=("${all[@]}")
command -v jq >/dev/null || { echo "run.sh: jq is needed: tools/setup.sh lists it in bench_packages" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$output"
build=$(cd "$build" && pwd) output=$(cd "$output" && pwd)
export PATH=$build/bin:$PATH

commit() {
    local changed=''
    git -C "$root" diff --quiet HEAD -- . ':!bench/results' ':!bench/plots' ':!*.md' 2>/dev/null || changed=', changed'
    echo "$(git -C "$root" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$changed"
}

machine() {
    local cpu memory
    cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
    memory=$(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
    echo "$(nproc) cores${cpu:+ ($cpu)}, $memory GiB of memory, $(uname -s), no GPU used"
}

load() { awk '{ print $1 }' /proc/loadavg; }

# keep NAME COMMAND: what is on standard input, with where it comes from, as a result.
keep() {
    jq --arg name "$1" --arg command "$2" --arg date "$(date -u +%Y-%m-%d)" --arg commit "$(commit)" --arg machine "$(machine)" --argjson load "$load_before" \
        '{schema: "ofload.result/1", name: $name, command: $command, date: $date, commit: $commit, machine: $machine, load_before: $load, result: .}' \
        >"$work/$1.json"
    mv "$work/$1.json" "$output/$1.json"
}

# bench NAME COMMAND…: ofload-bench as given, its JSON kept; what $here_only holds is of this machine and not told. Status 77: not installed, said by the
# program, nothing kept.
here_only=()
bench() {
    local name=$1 code=0
    shift
    (cd "$work" && ofload-bench "$@" "${here_only[@]}" --json) >"$work/out.json" || code=$?
    [ $code -ne 77 ] || { echo "run.sh: $name: skipped" >&2; return 0; }
    [ $code -eq 0 ] || return $code
    keep "$name" "ofload-bench $*" <"$work/out.json"
}

# One run of ofload-batch as a row of the table: its two forecasts' step, and how far above the longer of link and compute it stayed.
batch_run() {
    local input=$1 spec=$2
    shift 2
    rm -f "$work"/out.jsonl*
    ofload-batch --model "$model_dir/$model_file" --device "$spec" --input "$input" --output "$work/out.jsonl" --report "$work/report.json" --quiet "$@"
    jq '{forecast_step_seconds: (.measured.seconds / .measured.steps / (1 + .error_percent / 100)), step_seconds: .measured.step_seconds, error_percent,
         over_bound_percent: (100 * (.measured.step_seconds / .measured.bound_step_seconds - 1))}' "$work/report.json"
}

batch() {
    local questions=$root/examples/batch/questions.jsonl label spec sequences input
    model_is_there || fetch_model >&2 || { echo "run.sh: batch: skipped, the model is not there" >&2; return 0; }
    head -n 16 "$questions" >"$work/first16.jsonl"
    while IFS='|' read -r label spec sequences; do
        input=$questions
        [ -z "$sequences" ] || input=$work/first16.jsonl
        # shellcheck disable=SC2086
        for _ in 1 2; do batch_run "$input" "$spec" ${sequences:+--sequences $sequences}; done |
            jq -s --arg what "$label" --arg spec "$spec" --arg sequences "$sequences" '{"label": $what, device: $spec, sequences: $sequences, runs: .}'
    done <<'ROWS' | jq -s '{schema: "ofload.bench/1", name: "batch", simulated: true, clock: "wall", rows: .}' |
64 MiB, 250 MB/s|sim:vram=64MiB,h2d=250MB/s|
64 MiB, 500 MB/s|sim:vram=64MiB,h2d=500MB/s|
64 MiB, 1 GB/s|sim:vram=64MiB,h2d=1GB/s|
64 MiB, 2 GB/s|sim:vram=64MiB,h2d=2GB/s|
38 MiB, 1 GB/s, 8 sequences|sim:vram=38MiB,h2d=1GB/s|8
38 MiB, 2 GB/s, 8 sequences|sim:vram=38MiB,h2d=2GB/s|8
30 MiB, 2 GB/s, 4 sequences|sim:vram=30MiB,h2d=2GB/s|4
2 GiB, nothing streamed|sim:vram=2GiB,h2d=2GB/s|
ROWS
        keep batch "bench/run.sh batch"
}

run() {
    case "$1" in
    bound) bench bound plan --bound ;;
    queue) bench queue front --queue 500 ;;
    published) bench published replay published ;;
    tokens) bench tokens designs --tokens 1,60,knee ;;
    replay) bench replay replay 3060 ;;
    accuracy) bench accuracy accuracy --compute both ;;
    plan | front | units | load | designs) bench "$1" "$1" ;;
    link) bench link link --device sim:vram=1GiB,h2d=2GB/s,start=5us ;;
    compare) here_only=(--python "$(compare_python)") && bench compare compare ;;
    batch) batch ;;
    soak) OFLOAD_BUILD=$build "$root/tests/soak.sh" 30 "$work/soak" >&2 && keep soak "tests/soak.sh" <"$work/soak" ;;
    esac
}

for step in "${steps[@]}"; do
    load_before=$(load)
    echo "run.sh: $step" >&2
    run "$step"
done
