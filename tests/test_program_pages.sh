#!/usr/bin/env bash
# Help, manual page and completion of every program and command know the same options; completion gives what can stand there.
set -u
root=$1 build=$2 failed=0
fail() { echo "FAILED: $*"; failed=1; }
[ -x "$build/bin/ofload-plan" ] || { echo "skipped: built without the programs"; exit 77; }
export PATH=$build/bin:$PATH

# same PROGRAM [COMMAND]: the names in the three
same() {
    local help man words
    help=$("$@" --help | sed -nE 's/^  (--?[a-z-]+|[a-z0-9]+)( .*)?$/\1/p' | sort)
    man=$("$@" --help-man | sed -nE 's/^\\fB([^ ]*)\\fR( .*)?$/\1/; T; s/\\-/-/g; p' | grep -vx -e '' -e "$*" | sort)
    words=$("$@" --help-words | cut -d' ' -f1 | sort)
    [ "$(wc -l <<<"$words")" -gt 2 ] || fail "$*: no words"
    diff <(echo "$help") <(echo "$words") || fail "$*: help (<) and completion (>) differ"
    diff <(echo "$man") <(echo "$words") || fail "$*: manual page (<) and completion (>) differ"
    if command -v groff >/dev/null; then
        [ -z "$("$@" --help-man | groff -man -ww -K utf8 -T utf8 2>&1 >/dev/null)" ] || fail "$*: groff is not content with the page"
    fi
}
for program in ofload-plan ofload-batch ofload-bench; do
    same "$program"
    for command in $("$program" --help-words | sed -n 's/ command$//p'); do same "$program" "$command"; done
done
ofload-batch --help-words | grep -qx 'merge command' || fail "ofload-batch lists no merge"

# shellcheck source=/dev/null
. "$root/examples/common/completion.bash"
# gives WORDS -- EXPECTED: what the last of the words can become
gives() {
    COMP_WORDS=()
    while [ "$1" != -- ]; do COMP_WORDS+=("$1"); shift; done
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _ofload "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    [ "${COMPREPLY[*]}" = "$2" ] || fail "completion of \"${COMP_WORDS[*]}\": ${COMPREPLY[*]}"
}
gives ofload-plan --kv-t -- "--kv-type"
gives ofload-plan --kv-type "" -- "f16 bf16 f32 q8_0 f8"
gives ofload-batch --kv-type "" -- "f16 bf16 f32 q8_0"
gives ofload-plan --objective "" -- "latency throughput"
gives ofload-plan --objective = l -- "latency"
gives ofload-plan --objective = -- "latency throughput"
gives ofload-plan --vram "" -- ""
gives ofload-batch me -- "merge"
gives ofload-batch merge --ov -- "--overwrite"
gives ofload-batch merge --comp -- ""
gives ofload-bench mk -- "mkmodel"
gives ofload-bench replay "" -- "3060 published --scale --steps --compute --json --quiet --help --version"
gives ofload-bench replay p -- "published"
gives ofload-bench replay 3060 --sc -- "--scale"
gives ofload-bench stream --cl -- "--clock"
exit "$failed"
