#!/usr/bin/env bash
# What is installed works where it was moved to: a client outside the tree builds by pkg-config and by CMake, shared and static, and runs;
# the smallest example too. As a subproject the library leaves the outer project's settings alone.
set -u
root=$1 build=$2 failed=0
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
[ -z "$(cached OFLOAD_SANITIZE)" ] || { echo "skipped: a client would need the sanitizer's runtime"; exit 77; }
command -v pkg-config >/dev/null || { echo "skipped: no pkg-config"; exit 77; }
cc=$(cached CMAKE_C_COMPILER)
cxx=${CXX:-g++}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; failed=1; }

# expect WAY COMMAND...: it must build; run WAY PROGRAM: and say that all is well, at home in the folder that it was moved to
expect() { local way=$1; shift; "$@" >"$folder/log" 2>&1 || { fail "$way"; tail -20 "$folder/log"; }; }
run() {
    local said
    said=$(LD_LIBRARY_PATH=$libraries "$2") || fail "$1: it does not run"
    if [[ $said == *"every weight as it was"* ]]; then echo "$1: $said"; else fail "$1: $said"; fi
}
# links YES|NO PROGRAM: whether it needs the shared library
links() {
    local needs=NO
    if readelf -d "$2" | grep -q 'NEEDED.*libofload\.so\.[0-9]'; then needs=YES; fi
    [ "$needs" = "$1" ] || fail "$2: needs libofload.so: $needs"
}

cmake --install "$build" --prefix "$folder/first" >"$folder/log" || { cat "$folder/log"; exit 1; }
mkdir "$folder/other" && mv "$folder/first" "$folder/other/place"
moved=$folder/other/place
grep -rlF -e "$root" -e "$folder/first" -e "$build" "$moved" --include='*.pc' --include='*.cmake' && fail "these name folders of the build"
libraries=$(dirname "$(find "$moved" -name libofload.so)")
alone=$folder/alone # the same without the shared library
cp -a "$moved" "$alone" && find "$alone" -name 'libofload.so*' -delete

export PKG_CONFIG_PATH=$libraries/pkgconfig
# shellcheck disable=SC2046 # words
pc_build() { "$@" $(pkg-config --cflags --libs libofload); }
pc_static() { "$@" $(PKG_CONFIG_PATH=${libraries/#"$moved"/"$alone"}/pkgconfig pkg-config --static --cflags --libs libofload); }
pc_beside() { "$@" $(pkg-config --static --cflags --libs libofload | sed 's/-lofload/-l:libofload.a/'); }
client=$root/tests/embed/client.c
[ "$(pkg-config --modversion libofload)" = "$(cached CMAKE_PROJECT_VERSION)" ] || fail "pkg-config's version"
expect "pkg-config, shared, C99" pc_build "$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror "$client" -o "$folder/shared"
expect "pkg-config, shared, C++" pc_build "$cxx" -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror "$client" -o "$folder/shared-cxx"
expect "pkg-config, static" pc_static "$cc" "$client" -o "$folder/static"
expect "pkg-config, static beside shared" pc_beside "$cc" "$client" -o "$folder/beside"
expect "the smallest example" pc_build "$cc" "$root/examples/minimal/minimal.c" -lm -o "$folder/minimal"
for name in shared shared-cxx static beside; do run "pkg-config, $name" "$folder/$name"; done
links YES "$folder/shared"; links NO "$folder/static"; links NO "$folder/beside"

# The shared one needs nothing that the library is made of.
with_cmake() {
    cmake -S "$root/tests/embed" -B "$folder/$1" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$2" "${@:3}" && cmake --build "$folder/$1"
}
expect "CMake, shared" with_cmake shared-cmake "$moved" -DKIND=shared -DPKG_CONFIG_EXECUTABLE=/bin/false
expect "CMake, static" with_cmake static-cmake "$moved" -DKIND=static
for name in shared static; do run "CMake, $name" "$folder/$name-cmake/client"; done
links YES "$folder/shared-cmake/client"; links NO "$folder/static-cmake/client"
with_cmake refused "$moved" -DKIND=static -DPKG_CONFIG_EXECUTABLE=/bin/false >"$folder/log" 2>&1 && fail "static without hwloc"
tr -s '\n ' ' ' <"$folder/log" | grep -q 'no component "static" here: not found:.*HWLOC' ||
    fail "static without hwloc: $(cat "$folder/log")"

expect "as a subproject" cmake -S "$root/tests/embed/subproject" -B "$folder/sub" -DCMAKE_C_COMPILER="$cc" -DOFLOAD_CUDA=OFF \
    -DOFLOAD_SOURCE="$root"
exit "$failed"
