#!/usr/bin/env bash
# How well ofload-batch's forecast holds over a long queue, on the wall clock: N requests of mixed length that make all their tokens, on a simulated device.
#   bench/forecast.sh BUILD [N [MODEL]]    (default: 500 requests, a made-up model of 56 MB: about five minutes a line)
# SPEC=sim:… takes another device. The links are simulated and the products real: other load on the machine shows in the error.
set -euo pipefail
build=$(cd "${1:?usage: bench/forecast.sh BUILD [N [MODEL]]}" && pwd) count=${2:-500} model=${3:-}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if [ -z "$model" ]; then
    model=$dir/model.gguf
    "$build/bin/ofload-bench" mkmodel --architecture llama --layers 16 --hidden 384 --heads 6 --kv-heads 2 --ffn 1152 --type bf16 --output "$model" >/dev/null
fi
words="the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were her all she there would their"
awk -v count="$count" -v words="$words" 'BEGIN {
    srand(7); n = split(words, w, " ")
    for (i = 1; i <= count; i++) {
        text = ""; length_wanted = 5 + int(rand() * 120)
        for (j = 0; j < length_wanted; j++) text = text (j ? " " : "") w[1 + int(rand() * n)]
        printf "{\"custom_id\":\"q%d\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"%s\",\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}}\n",
            i, text, 4 + int(rand() * 60)
    }
}' >"$dir/in.jsonl"
printf '%-28s %6s %10s %10s %9s %15s\n' device steps forecast measured error "after 20 steps"
for spec in ${SPEC:-sim:vram=64MiB,h2d=300MB/s sim:vram=64MiB,h2d=2GB/s}; do
    rm -f "$dir"/out.jsonl*
    "$build/bin/ofload-batch" --model "$model" --device "$spec" --input "$dir/in.jsonl" --output "$dir/out.jsonl" --report "$dir/r.json" --quiet
    jq -r --arg spec "$spec" '[$spec, .measured.steps, .forecast.seconds, .measured.seconds, 100 * (.measured.seconds / .forecast.seconds - 1),
        (.forecast_after_20_steps.error_percent // "-")] | @tsv' "$dir/r.json" |
        awk -F'\t' '{ printf "%-28s %6d %8.1f s %8.1f s %+7.1f %% %+13.1f %%\n", $1, $2, $3, $4, $5, $6 }'
done
