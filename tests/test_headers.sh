#!/usr/bin/env bash
# Every public header compiles alone, as C99, C11 and C++11, without a warning.
set -u
root=$1 failed=0
for header in "$root"/include/ofload/*.h; do
    for flavour in "${CC:-gcc} -std=c99 -x c" "${CC:-gcc} -std=c11 -x c" "${CXX:-g++} -std=c++11 -x c++"; do
        $flavour -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$root/include" "$header" || failed=1
    done
done
exit "$failed"
