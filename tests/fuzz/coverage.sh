#!/usr/bin/env bash
# Lines of the parsers that the corpora reach, and that corpora and tests together reach: tests/fuzz/coverage.sh
# Fails where either is below 90 % for any of them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build-coverage
parsers='model/(gguf|hf|safetensors|description|place|open|construct|complete)[a-z_]*|base/(json|json_pull|file)|plan/plan_read|machine/machine_(json|probed)'
cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=--coverage -DOFLOAD_CUDA=OFF -DOFLOAD_BUILD_PROGRAMS=OFF > /dev/null
cmake --build "$build" > "$build/build.log"

# One line a parser: name, percent.
measure() {
    find "$build" -name '*.gcda' -delete
    ctest --test-dir "$build" -j 1 -R "$1" > "$build/tests.log" || { tail -20 "$build/tests.log"; return 1; }
    (cd "$build" && find lib -name '*.gcda' -print0 | xargs -0 gcov -n 2> /dev/null) |
        awk -F"[':%]" -v parsers="$parsers" '
            /^File / { name = $2; sub(/.*lib\//, "", name); sub(/\.c$/, "", name) }
            /^Lines / && name ~ "^(" parsers ")$" { print name, $2; name = "" }' | sort
}

corpora=$(measure '^fuzz_')
all=$(measure '^(fuzz_|test_(model|json|base|machine|plan|sha))')
join <(echo "$corpora") <(echo "$all") | awk '
    BEGIN { printf "%-32s %10s %10s\n", "parser", "corpora", "all tests" }
    { printf "%-32s %9.1f%% %9.1f%%\n", $1, $2, $3; if ($2 < 90 || $3 < 90) bad = 1 }
    END { exit bad }'
