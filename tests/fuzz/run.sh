#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for so many seconds: tests/fuzz/run.sh SECONDS [TARGET…]
# New inputs stay in build-fuzz/corpus/TARGET; a failing one is named, and kept in build-fuzz/artifacts. --keep as first argument: what adds
# coverage goes into tests/fuzz/corpus.
set -euo pipefail
keep=
if [ "${1:-}" = --keep ]; then keep=1; shift; fi
seconds=${1:?tests/fuzz/run.sh [--keep] SECONDS [TARGET…]}; shift
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(gguf safetensors index config description plan machine)
build=$root/build-fuzz
cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER="${CLANG:-clang}" -DOFLOAD_FUZZ=ON -DOFLOAD_CUDA=OFF -DOFLOAD_BUILD_PROGRAMS=OFF > /dev/null
cmake --build "$build" --target "${targets[@]/#/fuzz_}"

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
fuzz() {
    local target=$1 found=$build/corpus/$1 seeds=$root/tests/fuzz/corpus/$1 program=$build/bin/fuzz_$1
    mkdir -p "$found" "$build/artifacts"
    # No allocation above 64 MiB, whatever the file says: headers are read with bounded memory.
    "$program" -max_total_time="$seconds" -max_len=16384 -timeout=10 -malloc_limit_mb=64 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$build/artifacts/$target-" "$found" "$seeds" > "$build/$target.log" 2>&1 ||
        { tail -40 "$build/$target.log"; echo "$target: an input in $build/artifacts fails"; return 1; }
    echo "== $target, $seconds s: $(grep -E '^stat::(number_of_executed_units|peak_rss_mb)' "$build/$target.log" | tr -s ' \n' ' ')"
    [ -z "$keep" ] || "$program" -merge=1 -use_counters=0 -max_len=700 "$seeds" "$found" > /dev/null 2>&1
}
export -f fuzz
export build root seconds keep
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'fuzz {}'
echo "Nothing found in ${targets[*]}"
