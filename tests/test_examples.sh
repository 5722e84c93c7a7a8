#!/usr/bin/env bash
# The smallest examples, built as a stranger would: against the installed package, in a folder of their own, with the line in their first
# comment. Those without a GPU are run; what they stream must come to the same bits as what is all resident. Each is under 150 lines.
set -u
root=$1 build=$2 failed=0
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
[ -z "$(cached OFLOAD_SANITIZE)" ] || { echo "skipped: a client would need the sanitizer's runtime"; exit 77; }
command -v pkg-config >/dev/null || { echo "skipped: no pkg-config"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
cmake --install "$build" --prefix "$folder/prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
library=$(dirname "$(find "$folder/prefix" -name libofload.so)")
export PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
cp "$root"/examples/minimal/* "$folder" && cd "$folder" || exit 1
for file in ./*.c ./*.cu; do [ "$(wc -l <"$file")" -lt 150 ] || fail "$file: 150 lines or more"; done

# line FILE: the command in its first comment, with a compiler at its beginning
line() { sed -n 's/^ \* *\(\(cc\|nvcc\) .*\)$/\1/p' "$1" | sed -n '1{s/ \*\/$//;s/ && .*//;p}'; }
# builds FILE COMPILER
builds() {
    local command
    command=$(line "$1")
    [ -n "$command" ] || { fail "$1: no command in its first comment"; return 1; }
    eval "$2 ${command#* }" >log 2>&1 || { fail "$1: $command"; tail -20 log; return 1; }
}
# runs PROGRAM WORDS [ARGUMENT...]: it must say them
runs() {
    local said
    said=$("./$1" "${@:3}") && [[ $said == *"$2"* ]] && echo "$1 ${*:3}: $said" || fail "$1 ${*:3}: $said"
}
cc=$(cached CMAKE_C_COMPILER)
for name in minimal llama front; do builds $name.c "$cc -std=c11 -Wall -Werror" || exit 1; done
runs minimal "same result"
runs front "same answers: 12 requests, 174 new tokens"
runs llama "same logits"
runs llama "same logits; 0.0 of" sim:vram=1GiB,h2d=1GB/s
runs llama "same logits" sim:vram=8MiB,h2d=1GB/s,pinnable=4MiB

nvcc=$(command -v nvcc || command -v "$(cached CUDAToolkit_NVCC_EXECUTABLE)") || { echo "llama.cu: no nvcc, not built"; exit "$failed"; }
builds llama.cu "$nvcc" || exit 1
said=$(./llama 2>&1); status=$?
case $status in
0) [[ $said == "same logits"* ]] && echo "llama.cu: $said" || fail "llama.cu: $said" ;;
77) echo "llama.cu: built, not run: $said" ;;
*) fail "llama.cu: exit $status: $said" ;;
esac
exit "$failed"
