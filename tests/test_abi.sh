#!/usr/bin/env bash
# What compiled programs rely on is as it was released: golden/abi has the layout of structs, the values of enums and the exported names. A
# program that knows less of the structs than this release, or more, works with its library.
# OFLOAD_UPDATE_GOLDEN=1 bash tests/test_abi.sh . build writes the goldens anew, unless older programs would break: for that say =break, and
# raise OFLOAD_ABI in CMakeLists.txt.
set -u
root=$(cd "$1" && pwd) build=$(cd "$2" && pwd) failed=0
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
[ "$(getconf LONG_BIT)" = 64 ] || { echo "skipped: the goldens are those of 64 bits"; exit 77; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
cc=$(cached CMAKE_C_COMPILER)
abi() { python3 "$root/tests/support/abi.py" "$@"; }
golden=$root/tests/golden/abi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; failed=1; }

abi layout "$root/include" "$cc" >"$folder/layout.txt" || exit 1
nm -D --defined-only "$build/lib/libofload.so" | awk '$2 != "A" {print $3}' | LC_ALL=C sort >"$folder/symbols.txt"
for name in layout.txt symbols.txt; do
    abi compare "$golden/$name" "$folder/$name" && continue
    breaks=$([ $? -eq 3 ] && echo no || echo yes)
    case "$breaks ${OFLOAD_UPDATE_GOLDEN:-}" in
    "no 1" | *" break") cp "$folder/$name" "$golden/$name" && echo "$name: written anew" ;;
    *) fail "$name is not as released; OFLOAD_UPDATE_GOLDEN=1 bash $0 . build takes what grew" ;;
    esac
done
diff <(abi functions "$root/include" "$cc") <(sed 's/@.*//' "$folder/symbols.txt") ||
    fail "declared for export (<) is other than exported (>): see lib/ofload.map"
others=$(abi names "$root/include" "$cc") || fail "names that are not ofl_, OFL_ or OFLOAD_: $others"

if [ -z "$(cached OFLOAD_SANITIZE)" ]; then
    for when in earlier later; do
        abi "$when" "$root/include" "$folder/$when" || fail "no $when headers"
        if ! "$cc" -std=c99 -Wall -I "$folder/$when" "$root/tests/embed/client.c" -L "$build/lib" -lofload -o "$folder/client"; then
            fail "client of $when headers"
            continue
        fi
        said=$(LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$folder/client") || fail "a client of $when headers: $said"
        echo "client of $when headers: $said"
    done
fi
exit "$failed"
