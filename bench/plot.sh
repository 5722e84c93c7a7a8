#!/usr/bin/env bash
# Draws bench/results as SVG into bench/plots: bench/plot.sh [--output FOLDER] [NAME…]    (default: all that has been measured)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
output=$here/plots
if [ "${1:-}" = --output ]; then output=${2:?--output needs a folder}; shift 2; fi
all=(accuracy designs bound compare plan front units load)
command -v gnuplot >/dev/null || { echo "plot.sh: gnuplot is needed: tools/setup.sh lists it in bench_packages" >&2; exit 77; }
command -v jq >/dev/null || { echo "plot.sh: jq is needed: tools/setup.sh lists it in bench_packages" >&2; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$output"

# The numbers of a plot, one line a point.
declare -A data=(
    [accuracy]='.result.rows[] | select(.tokens) | [.forecast_seconds * 1000, .step_seconds * 1000, .error_percent, .error_percent - .spread_percent / 2,
                .error_percent + .spread_percent / 2, (if .compute == "products" then 2 elif .bound == "link" then 1 else 0 end)]'
    [designs]='.result.rows | group_by(.compute_share)[] | (map({(.label): .over_bound}) | add) as $x
               | [.[0].compute_share, $x["copy, then compute"], $x["two layer slots, contiguous"], $x["two layer slots, spread"], $x["this engine"]]'
    [bound]='.result.rows | map(. + {link: (.label | capture("(?<n>[0-9.]+) GB/s").n | tonumber)}) | group_by(.link)[]
             | [.[0].link, (map(.above_bound) | max), (map(.whole_blocks_above_bound) | max)]'
    [compare]='.result.rows as $r | range(0; $r | length; 2) | [($r[.].label | gsub(" in memory"; "")), $r[.].step_seconds * 1000, $r[. + 1].step_seconds * 1000]'
    [plan]='.result.rows | map([.tensors, .plan_seconds * 1000]) | unique_by(.[0])[]'
    [front]='.result.rows[] | [(.label | capture("(?<n>[0-9,]+)").n | gsub(","; "") | tonumber), .seconds_per_step * 1e6]'
    [units]='.result.rows[] | [.units, .seconds_per_step * 1e6]'
    [load]='.result.rows[] | select(.label | test("device")) | [.bytes / 1e6, .bytes_per_second / 1e9]'
)
declare -A scaling=(
    [plan]='title="planning, by tensors"; xname="tensors"; yname="ms"'
    [front]='title="the front, by sequences"; xname="sequences"; yname="µs a step"'
    [units]='title="calls of the engine, by units"; xname="units"; yname="µs a step"'
    [load]='title="loading, by size, from the page cache"; xname="MB"; yname="GB/s"'
)

draw() {
    local name=$1 script=$1 result=$here/results/$1.json
    [ -n "${data[$name]:-}" ] || { echo "plot.sh: there is no plot \"$name\"; there are: ${all[*]}" >&2; return 2; }
    [ -f "$result" ] || { echo "plot.sh: $name: not measured yet (bench/run.sh $name)" >&2; return 0; }
    [ -z "${scaling[$name]:-}" ] || script=scaling
    jq -r "${data[$name]} | @tsv" "$result" >"$work/$name.tsv"
    (cd "$work" && gnuplot -e "set encoding utf8; set datafile separator '\t'; data='$name.tsv'; ${scaling[$name]:-}" "$here/plots/common.gp" "$here/plots/$script.gp") >"$work/$name.svg"
    mv "$work/$name.svg" "$output/$name.svg"
}

[ $# -gt 0 ] || set -- "${all[@]}"
for name in "$@"; do draw "$name"; done
