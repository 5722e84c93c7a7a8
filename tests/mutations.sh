#!/usr/bin/env bash
# Takes each wait, record and order of the copy engine away in turn and demands that a test notices: tests/mutations.sh [NAME…]
# Works in a copy under build-mutations (or $OFLOAD_MUTATIONS_DIR). Minutes; as a CTest (label long) only with OFLOAD_TEST_LONG=1.
# mutations.txt lists them. One that no longer applies fails too: the list has to follow the code. --apply looks at that alone, in no time.
set -euo pipefail
if [ "${1:-}" = --ctest ]; then
    [ -n "${OFLOAD_TEST_LONG:-}" ] || { echo "takes minutes: set OFLOAD_TEST_LONG=1"; exit 77; }
    shift
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ "${1:-}" = --apply ]; then
    command -v perl >/dev/null || { echo "perl is not there: skipped"; exit 77; }
    failed=0
    while IFS=$'\t' read -r name file substitution; do
        [[ -z $name || $name == \#* ]] && continue
        mutated=$(perl -0pe "$substitution" "$root/$file") || { echo "$name: perl cannot run it"; failed=1; continue; }
        [ "$mutated" != "$(cat "$root/$file")" ] || { echo "$name does not apply: $file has changed"; failed=1; }
    done <"$root/tests/mutations.txt"
    exit $failed
fi
work=${OFLOAD_MUTATIONS_DIR:-$root/build-mutations}
mutants=$root/tests/mutations.txt

mkdir -p "$work"
rm -rf "$work/source"
mkdir "$work/source"
(cd "$root" && git ls-files -z --cached --others --exclude-standard -- CMakeLists.txt cmake include lib tests pkgconfig examples/common) |
    (cd "$root" && xargs -0 cp --parents -t "$work/source")
targets=(test_engine test_engine_faults test_engine_load test_engine_random)
cmake -S "$work/source" -B "$work/build" -DOFLOAD_BUILD_PROGRAMS=OFF -DOFLOAD_WERROR=OFF >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
cuda=$(grep -c 'CUDA back end: ON' "$work/log" || true)
tests='^test_engine(_faults|_load|_random)?$'
if [ "$cuda" = 1 ]; then
    targets+=(test_engine_cuda test_engine_streams test_device ofload_fakecuda)
    tests='^test_(engine(_faults|_load|_random|(_streams)?_on_fakecuda(_virtual)?)?|device_on_fakecuda(_virtual|_late)?)$'
fi

build_it() { cmake --build "$work/build" -j 2 --target "${targets[@]}" >"$work/build.log" 2>&1; }
test_it() { ctest --test-dir "$work/build" --stop-on-failure --timeout 60 -R "$tests" >"$work/test.log" 2>&1; }
failing() { sed -n 's/.*Test *#[0-9]*: \(test_[a-z_]*\) .*\(Failed\|Exception\|Timeout\|Subprocess\).*/\1/p' "$work/test.log" | head -1; }

build_it || { tail -40 "$work/build.log" >&2; exit 1; }
test_it || { echo "mutations: the tests fail without a mutation" >&2; tail -30 "$work/test.log" >&2; exit 1; }

survivors=() stale=() count=0
while IFS=$'\t' read -r name file substitution; do
    [[ -z $name || $name == \#* ]] && continue
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    case "$file" in */cuda*) [ "$cuda" = 1 ] || { printf '%-34s skipped: no CUDA toolkit\n' "$name"; continue; } ;; esac
    count=$((count + 1))
    target=$work/source/$file
    cp "$target" "$work/original"
    perl -0pi -e "$substitution" "$target"
    if cmp -s "$target" "$work/original"; then
        printf '%-34s DOES NOT APPLY: %s has changed\n' "$name" "$file"
        stale+=("$name")
        continue
    fi
    if ! build_it; then
        printf '%-34s DOES NOT COMPILE\n' "$name"
        stale+=("$name")
    elif test_it; then
        printf '%-34s SURVIVED\n' "$name"
        survivors+=("$name")
    else
        printf '%-34s caught by %s\n' "$name" "$(failing)"
    fi
    cp "$work/original" "$target"
done <"$mutants"

echo "$count mutants, ${#survivors[@]} survivors, ${#stale[@]} that do not apply"
[ "$count" -gt 0 ] && [ ${#survivors[@]} -eq 0 ] && [ ${#stale[@]} -eq 0 ]
