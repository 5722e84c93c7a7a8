#!/usr/bin/env bash
# Every public header compiles alone, and twice, as C99, C11, C++11 and C++20, with each compiler that is there, without a warning.
set -u
root=$1 failed=0
c_flags=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror -fsyntax-only -I "$root/include")
for header in "$root"/include/ofload/*.h; do
    text="#include <ofload/$(basename "$header")>"
    for flavour in "${CC:-gcc} -Wstrict-prototypes -std=c99 -x c" "${CC:-gcc} -std=c11 -x c" \
        "${CXX:-g++} -Wold-style-cast -std=c++11 -x c++" "${CXX:-g++} -std=c++20 -x c++" \
        "clang -std=c99 -x c" "clang++ -std=c++11 -x c++"; do
        command -v "${flavour%% *}" >/dev/null || continue
        printf '%s\n%s\n' "$text" "$text" | $flavour "${c_flags[@]}" - || { echo "FAILED: $(basename "$header"): $flavour"; failed=1; }
    done
done
exit "$failed"
