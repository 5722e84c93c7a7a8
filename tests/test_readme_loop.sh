#!/usr/bin/env bash
# The README's diff of an existing loop: at most 40 changed lines; applied as printed to a loop of that make, the loop prints what it
# printed before, whatever share of it is streamed. On the real file, too, where OFLOAD_TEST_LLAMA2C names it.
set -u
root=$1 build=$2 failed=0
grep -q '^OFLOAD_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" && { echo "skipped: a client would need the sanitizer's runtime"; exit 77; }
command -v patch >/dev/null || { echo "skipped: no patch"; exit 77; }
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
fail() { echo "FAILED: $*"; failed=1; }

sed -n '/^```diff$/,/^```$/{/^```/d;p}' "$root/README.md" >stream.patch
lines=$(grep -cE '^[-+]' stream.patch)
lines=$((lines - 2)) # the names of the files
[ "$lines" -gt 10 ] && [ "$lines" -le 40 ] || fail "$lines changed lines"
grep -q "$lines changed lines" "$root/README.md" || fail "the README says another number than $lines"

# changed FILE: builds it as it is and with the diff
changed() {
    cp "$1" before.c && cp "$1" after.c && patch -s -F 0 after.c stream.patch || { fail "$1: the diff does not apply"; return 1; }
    "$cc" -std=gnu11 -O2 -w before.c -lm -o before && "$cc" -std=gnu11 -O2 -w -I "$root/include" after.c -L "$build/lib" -lofload -lm -o after
}
changed "$root/tests/embed/loop.c" || exit 1
export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
./before checkpoint write || exit 1
wanted=$(./before checkpoint)
for vram in 3MB 6MB 1GB; do
    got=$(DEVICE=sim:vram=$vram,h2d=1GB/s ./after checkpoint)
    [ "$got" = "$wanted" ] && echo "$vram: the same" || fail "$vram: $got instead of $wanted"
done
said=$(DEVICE=sim:vram=500kB,h2d=1GB/s ./after checkpoint 2>&1) && fail "500 kB: no failure"
[[ $said == *"sequence of 24 tokens fits"* ]] && echo "500 kB: $said" || fail "500 kB: $said"
if [ -n "${OFLOAD_TEST_LLAMA2C:-}" ]; then changed "$OFLOAD_TEST_LLAMA2C" && echo "$OFLOAD_TEST_LLAMA2C: applies and builds" || failed=1; fi
exit "$failed"
