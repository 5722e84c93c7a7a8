#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests: tests/run.sh [--quick]
# --quick: one build with gcc, its tests. Without it also clang, without CUDA, address+undefined and thread sanitizers, fuzzing, lint and reference.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
quick=
case "${1:-}" in
"") ;;
--quick) quick=1 ;;
*) sed -n '2,3p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
cd "$root"

packages=("${build_packages[@]}" "${model_packages[@]}" libcmocka-dev jq patch)
[ -n "$quick" ] || packages+=(clang clang-format clang-tidy doxygen)
install_packages "${packages[@]}"
if [ -z "$quick" ]; then # the fuzzer's and sanitizers' run time, where it is a package of its own
    runtime=libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev
    if apt-cache show "$runtime" >/dev/null 2>&1; then install_packages "$runtime"; fi
fi
fetch_model || echo "Tests that need the real model will be skipped."
export OFLOAD_MODEL_DIR=$model_dir

# run_tests FOLDER [ctest options]
run_tests() {
    local folder=$1; shift
    say "Tests: $folder $*"
    ctest --test-dir "$folder" --output-on-failure -j 2 "$@"
}

build build
run_tests build
if [ -n "$quick" ]; then exit 0; fi

# The first build has kernels for every GPU; one is enough for the others.
one_gpu=-DOFLOAD_CUDA_ARCHITECTURES=90
build build-clang -DCMAKE_C_COMPILER=clang $one_gpu
run_tests build-clang -R '^test_(base|plan|engine|batch_kernels)$' # a few: what another compiler makes of it
build build-nocuda -DOFLOAD_CUDA=OFF -DOFLOAD_BUILD_PROGRAMS=OFF
run_tests build-nocuda -R '^test_(base|device|embed|abi)'

# But for what is about text, packages and other compilers.
build build-asan "-DOFLOAD_SANITIZE=address,undefined" -DCMAKE_BUILD_TYPE=RelWithDebInfo $one_gpu
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 run_tests build-asan -E '^test_(abi|docs|embed|examples|headers|layers|packages|program_pages|readme_.*)$'

build build-tsan -DOFLOAD_SANITIZE=thread $one_gpu
# The thread sanitizer cannot map its shadow where address randomisation is too wide.
tsan=(ctest --test-dir build-tsan --output-on-failure -j 2 -L threads)
setarch "$(uname -m)" -R true 2>/dev/null && tsan=(setarch "$(uname -m)" -R "${tsan[@]}")
say "Tests: build-tsan (those with threads)"
"${tsan[@]}"
say "Fuzzing: ${OFLOAD_FUZZ_SECONDS:-10} s a target"
tests/fuzz/run.sh "${OFLOAD_FUZZ_SECONDS:-10}"
say "Style: format, lint, reference"
OFLOAD_BUILD=build-clang tests/style.sh format tidy docs
say "All stages passed"
