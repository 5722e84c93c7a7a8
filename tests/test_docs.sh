#!/usr/bin/env bash
# The reference from the public headers is made without a warning: every function, type and macro has its own comment.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bash "$1/docs/build.sh" "$folder" >"$folder/said"
status=$?
cat "$folder/said"
[ "$status" -eq 0 ] || exit "$status"
for name in ofl_engine_acquire ofl_model_from_stacks ofl_front_commit ofl_plan_make; do
    grep -rlq "$name" "$folder"/html/*_8h.html || { echo "$name is not in it"; exit 1; }
done
