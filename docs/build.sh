#!/usr/bin/env bash
# docs/build.sh FOLDER: the reference from the public headers, in FOLDER/html. Fails where a function, type or macro has no comment, or a
# comment is wrong; fields whose name says it all may go without.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:?"$(sed -n '2p' "${BASH_SOURCE[0]}")"}
command -v doxygen >/dev/null || { echo "skipped: no doxygen"; exit 77; }
mkdir -p "$folder" && cd "$root" || exit 1
version=$(sed -n 's/^project(ofload VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
{ cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = \"$folder\""; echo "PROJECT_NUMBER = $version"; } | doxygen - >"$folder/log" 2>&1 ||
    { cat "$folder/log"; exit 1; }
# The fields of structs, enumerators, and what X-lists define for themselves.
wrong=$(grep -vE '\((variable|enumvalue)\) of|Member OFL_[A-Z]+_ENUM\(|Member OFL_API ' "$folder/log")
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }
[ -s "$folder/html/index.html" ] || { echo "no page was made"; exit 1; }
echo "$folder/html/index.html"
