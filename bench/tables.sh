#!/usr/bin/env bash
# The tables of README.md and bench/README.md, from bench/results: what stands between <!-- bench: NAME --> and <!-- /bench --> is printed by it.
#   bench/tables.sh NAME                         prints one
#   bench/tables.sh --write [FILE…]              writes all of these files anew (default: the two)
#   bench/tables.sh --check [FILE…]              says where a file differs; exit status 1 where one does
# --results FOLDER before these takes other results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=$here/results
if [ "${1:-}" = --results ]; then results=${2:?--results needs a folder}; shift 2; fi
files=("$here/../README.md" "$here/README.md")

table() {
    local name=$1 result=$results/${1%-*}.json
    [ -f "$result" ] || result=$results/$name.json
    jq -e --arg name "$name" -n -f "$here/tables.jq" --argjson known true >/dev/null || { echo "tables.sh: there is no table \"$name\"" >&2; return 1; }
    [ -f "$result" ] || { echo "Not measured yet: \`bench/run.sh ${name%-*}\`."; return 0; }
    jq -r --arg name "$name" --argjson known false -f "$here/tables.jq" "$result"
}

# The file as it should be.
fill() {
    local line name=''
    while IFS= read -r line || [ -n "$line" ]; do
        if [[ $line =~ ^'<!-- bench: '([a-z-]+)' -->'$ ]]; then
            name=${BASH_REMATCH[1]}
            printf '%s\n' "$line"
            table "$name"
        elif [ "$line" = '<!-- /bench -->' ]; then
            name=''
            printf '%s\n' "$line"
        elif [ -z "$name" ]; then
            printf '%s\n' "$line"
        fi
    done <"$1"
    [ -z "$name" ] || { echo "tables.sh: $1: <!-- bench: $name --> has no end" >&2; return 1; }
}

case "${1:-}" in
--write | --check)
    mode=$1 differs=0
    shift
    [ $# -gt 0 ] && files=("$@")
    for file in "${files[@]}"; do
        filled=$(mktemp)
        fill "$file" >"$filled" || { rm -f "$filled"; exit 1; }
        if [ "$mode" = --write ]; then cat "$filled" >"$file"
        else diff -u "$file" "$filled" || differs=1
        fi
        rm -f "$filled"
    done
    exit $differs
    ;;
-* | '') sed -n '2,6p' "${BASH_SOURCE[0]}"; exit 2 ;;
*) table "$1" ;;
esac
