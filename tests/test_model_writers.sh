#!/usr/bin/env bash
# Models of random shapes and types, written now by the reference writers, are read back as they were: test_model_writers.sh SOURCE BUILD
# OFLOAD_PYTHON: a Python that has the packages gguf and safetensors; skipped (77) where there is none.
set -euo pipefail
source_dir=$1 build=$2
python=${OFLOAD_PYTHON:-python3}
if ! "$python" -c 'import gguf, safetensors, numpy' 2> /dev/null; then
    echo "skipped: $python has no gguf and safetensors (set OFLOAD_PYTHON to one that has)"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
seed=${OFLOAD_SEED:-$RANDOM}
"$python" "$source_dir/tests/golden/make_reference.py" "$folder" "$seed" 40
"$build/bin/test_model_reference" "$folder" || { echo "with OFLOAD_SEED=$seed"; exit 1; }
