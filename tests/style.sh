#!/usr/bin/env bash
# tests/style.sh [format|tidy|docs]...: what no compiler says; all three without a word. Each is left out, aloud, where its tool is missing.
#   format  lines changed since the main branch (OFLOAD_STYLE_BASE, a commit) look as .clang-format has it, and no line is too long
#   tidy    clang-tidy's small set (.clang-tidy) over lib, examples and bench; OFLOAD_BUILD: the folder to take its commands from
#   docs    the reference is made without a warning
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
failed=0
missing() { command -v "$1" >/dev/null && return 1; echo "$2: left out: no $1"; }

format() {
    local base long
    long=$(git ls-files '*.c' '*.h' '*.cu' | grep -vE '^tests/golden' | LC_ALL=C.UTF-8 xargs grep -nE '^.{141,}$')
    base=$(git merge-base HEAD "${OFLOAD_STYLE_BASE:-origin/main}" 2>/dev/null || git rev-parse HEAD~1)
    echo "format: $(printf '%s' "$long" | grep -c .) lines of more than 140 characters in all; changed lines since $(git rev-parse --short "$base"):"
    # New ones are refused.
    git diff -U0 "$base" -- '*.c' '*.h' '*.cu' | grep -v '^+++' | LC_ALL=C.UTF-8 grep -E '^\+.{141,}$' && { echo "format: longer than 140 characters"; failed=1; }
    missing clang-format-diff format && return
    git diff -U0 "$base" -- '*.c' '*.h' | clang-format-diff -p1 >"$scratch/format"
    [ -s "$scratch/format" ] || { echo "format: as it should be"; return; }
    cat "$scratch/format"
    echo "format: not as .clang-format has it: clang-format-diff -p1 -i, or leave it where a table reads better (not counted as a failure)"
}

tidy() {
    local build=${OFLOAD_BUILD:-build}
    missing run-clang-tidy tidy && return
    [ -f "$build/compile_commands.json" ] || cmake -S . -B "$build" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null || { failed=1; return; }
    nice run-clang-tidy -quiet -p "$build" "^$root/(lib|examples|bench)/" >"$scratch/tidy" 2>/dev/null
    local status=$?
    grep -E 'warning:|error:' "$scratch/tidy" | sort -u
    [ "$status" -eq 0 ] && echo "tidy: nothing found" || failed=1
}

docs() {
    local status
    bash docs/build.sh "$scratch/docs"
    status=$?
    if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then failed=1; fi
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ $# -gt 0 ] || set -- format tidy docs
for stage in "$@"; do
    case $stage in
    format | tidy | docs) "$stage" ;;
    *) sed -n '2,5p' "${BASH_SOURCE[0]}"; exit 2 ;;
    esac
done
exit "$failed"
