#!/usr/bin/env bash
# Every table that README.md and bench/README.md have from a result file equals it at the printed precision, and what is modelled comes out again.
set -u
root=$1 build=$2 failed=0
command -v jq >/dev/null || { echo "jq is not installed: skipped"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tables=$root/bench/tables.sh
fail() { echo "FAILED: $*"; failed=1; }

"$tables" --check || fail "these lines differ from bench/results; bench/tables.sh --write writes them"

# What stands between the marks is looked at: another digit, another row or a mark without an end is found.
for change in 's/1\.02\*\*/1.03**/' '0,/^| 0\.5 /{/^| 0\.5 /d}' '0,/<!-- \/bench -->/{/<!-- \/bench -->/d}'; do
    sed "$change" "$root/README.md" >"$work/changed.md"
    cmp -s "$work/changed.md" "$root/README.md" && fail "$change changes nothing in README.md"
    "$tables" --check "$work/changed.md" >/dev/null 2>&1 && fail "$change was not noticed"
done

for file in "$root"/bench/results/*.json; do
    jq -e '.schema == "ofload.result/1" and (.result.rows | length > 0) and ([.name, .command, .date, .commit, .machine] | all(type == "string" and length > 0))' \
        "$file" >/dev/null || fail "$file: not a result with command, date, commit and machine"
    jq -r '[.. | strings] | join("\n")' "$file" | grep -qE '(^|[^a-z])/(home|root|tmp|work)/' && fail "$file: has a path of the machine in it"
    name=$(basename "$file" .json)
    grep -q "<!-- bench: $name" "$root/README.md" "$root/bench/README.md" || fail "$file: is shown nowhere"
done

# Modelled figures, made anew by this build: they do not depend on the machine.
if [ -x "$build/bin/ofload-bench" ]; then
    cp -r "$root/bench/results" "$work/results"
    "$root/bench/run.sh" --build "$build" --output "$work/results" bound queue published 2>/dev/null || fail "bench/run.sh bound queue published"
    "$tables" --results "$work/results" --check || fail "this build gives other figures: bench/run.sh bound queue published, then bench/tables.sh --write"
fi
[ $failed -eq 0 ] && echo "the tables are those of the results"
exit $failed
