#!/usr/bin/env bash
# From a fresh Debian or Ubuntu to 60 answers: installs packages, builds, fetches a small real model, plans, runs a batch on a simulated device
# that is smaller than the model, shows answers, forecast and measurement. Run again, it does only what is missing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../tools/setup.sh"
cd "$root"

install_packages "${build_packages[@]}" "${model_packages[@]}" jq
build build -DOFLOAD_BUILD_TESTS=OFF

# The device: less memory for everything than the weights alone take, behind a link of 1 GB/s. Simulated: this needs no GPU.
device=${OFLOAD_DEVICE:-sim:vram=64MiB,h2d=1GB/s}
out=build/quickstart
mkdir -p "$out"
if fetch_model; then
    model=$model_dir/$model_file
else
    model=$out/noise.gguf
    say "Model: not to be had, so a generated one stands in: its weights are random, ITS ANSWERS ARE NOISE"
    [ -f "$model" ] || build/bin/ofload-bench mkmodel --architecture llama --layers 24 --hidden 512 --heads 8 --kv-heads 4 --ffn 1536 --type bf16 --output "$model"
fi

say "Plan: what lives where on $device, and how fast it will be"
echo "(for one sequence of 128 tokens, compute by the device's rates, which nobody has measured; the batch below is another job, and measures)"
build/bin/ofload-plan --device "$device" --context 128 "$model"

say "Batch: 60 prompts (30 additions, 20 multiplications, 10 facts)"
echo "(its plan: as many sequences at once as fit, the compute timed before; \"a step takes\" is a full step in which each of them makes a token;"
echo " \"forecast\" in the end is the same plan's, summed over the steps that ran, which hold prompts too and are not all full)"
rm -f "$out/answers.jsonl" "$out/answers.jsonl.state.json"
build/bin/ofload-batch --model "$model" --device "$device" --input examples/batch/questions.jsonl --output "$out/answers.jsonl" --report "$out/report.json"

say "Answers"
jq -r '[.custom_id, (.response.body.choices[0].message.content // .error.message | gsub("\n"; " "))] | @tsv' "$out/answers.jsonl" | sort
say "Score (an answer counts when it contains the right one; a model this small gets few sums right)"
jq -rn --slurpfile right examples/batch/answers.json '
    [inputs | {id: .custom_id, text: (.response.body.choices[0].message.content // "")}
     | {kind: (.id | split("-")[0]), ok: (.text as $t | any($right[0][.id][]; . as $a | $t | ascii_downcase | contains($a | ascii_downcase)))}]
    | (group_by(.kind)[] | "\(.[0].kind)  \(map(select(.ok)) | length) of \(length)"),
      "all  \(map(select(.ok)) | length) of \(length)"' "$out/answers.jsonl"
say "Forecast and measurement ($out/report.json)"
jq . "$out/report.json"
