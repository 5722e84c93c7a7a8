#!/usr/bin/env bash
# ofload-batch with its GPU back end, over the stand-in runtime (ofload-batch-standin), beside the CPU back end on a simulated device: the same greedy
# tokens, streamed and resident, after a kill, with less memory; what fails is told. And ofload-batch itself where there is no device.
# test_batch_standin.sh ROOT BUILD gpu: what of it needs no stand-in, with ofload-batch on a GPU.
set -u
build=$2 failed=0 # $1: the sources
cpu=$build/bin/ofload-batch gpu=$build/bin/ofload-batch-standin bench=$build/bin/ofload-bench
standin=1 libraries=$build/tests/fakecuda
if [ "${3:-}" = gpu ]; then
    [ -e /proc/driver/nvidia/version ] || { echo "there is no GPU here"; exit 77; }
    gpu=$cpu standin='' libraries=${LD_LIBRARY_PATH:-}
fi
[ -x "$cpu" ] && [ -x "$gpu" ] || { echo "the programs are not built"; exit 77; }
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export SOURCE_DATE_EPOCH=1700000000
[ -z "$standin" ] || export CUDA_VISIBLE_DEVICES=0,1 OFLOAD_FAKECUDA_SPEC="sim:vram=64MB,h2d=2GB/s,runtime=1MB"
unset SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT JOB_COMPLETION_INDEX

fail() { echo "$*"; failed=1; }
# on_gpu STATUS TEXT OPTIONS…: the run ends so, and what it says contains TEXT.
on_gpu() {
    local status=$1 text=$2 got
    shift 2
    said=$(LD_LIBRARY_PATH=$libraries "$gpu" --device cuda:0 --no-progress "$@" 2>&1)
    got=$?
    [ "$got" -eq "$status" ] || { fail "status $got instead of $status: $*"; echo "$said"; }
    case $said in *"$text"*) ;; *) fail "no \"$text\" from: $*"; echo "$said" ;; esac
}
on_cpu() { "$cpu" --device "${SPEC:-sim:vram=64MB,h2d=2GB/s}" --no-progress "$@" >cpu.log 2>&1 || { fail "on the CPU: $*"; cat cpu.log; }; }
texts() { jq -cS '[.custom_id, .error.code, [.response.body.choices[]?.text]]' "$1" | sort; }
same() { cmp -s <(texts "$1") <(texts "$2") || { fail "$3: other answers"; diff <(texts "$1") <(texts "$2") | head -n 6; }; }

# Token by token until one differs from the CPU's; there the CPU's two likeliest must have been closer than 0.1.
near() {
    jq -s -r 'map(select(.response) | .response.body.choices[0].logprobs as $l | {id: .custom_id, t: $l.tokens, p: $l.token_logprobs,
              second: [$l.top_logprobs[] | [.[]] | sort | reverse | .[1]]}) | group_by(.id)[]
              | . as [$a, $b] | ([range($a.t | length) | select($a.t[.] != $b.t[.])][0] // -1) as $d
              | "\($a.id)\t\($d)\t\(if $d < 0 then 0 else $a.p[$d] - $a.second[$d] end)"' "$1" "$2" >compared
    awk -F '\t' -v least="$3" '$2 >= 0 && $3 > 0.1 { bad = 1 } $2 < 0 { whole++ } END { exit bad || whole < least }' compared ||
        { fail "$4: other tokens than on the CPU"; cat compared; }
}
# plan_for NAME OPTIONS…: plans for the stand-in, without measuring: NAME.json
plan_for() {
    local name=$1
    shift
    "$build/bin/ofload-plan" --device none --link 2GB/s --overhead 1MB --objective throughput --queue 14 --context 160 --output "$name.json" "$@" >plan.log 2>&1 ||
        { fail "no plan: $*"; cat plan.log; }
}

"$bench" mkmodel --architecture llama --layers 8 --hidden 128 --heads 4 --kv-heads 2 --ffn 384 --type bf16 --output tiny.gguf >/dev/null || exit 1
for i in $(seq 1 14); do
    printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"model":"any","prompt":"%s Question %d?","max_tokens":%d,"temperature":0,"logprobs":2}}\n' \
        "$i" "$(head -c $((i * 7)) /dev/zero | tr '\0' x)" "$i" $((i % 5 + 4))
done >in.jsonl
model="--model tiny.gguf --input in.jsonl --overwrite"

# ---- the same greedy tokens wherever weights and KV are, and however prompts are cut ----
f32="--compute f32 --kv-type f32"
on_cpu $model $f32 --output cpu.jsonl
on_gpu 0 "14 answered" $model $f32 --output gpu.jsonl --vram 5MB --report r.json
near cpu.jsonl gpu.jsonl 12 "streamed"
jq -e '.measured.link_bytes_per_second > 0 and .peak_device_bytes <= .budget_bytes' r.json >/dev/null || fail "nothing was streamed, or too much memory"
plan_for resident --vram 60MB --kv-type f16 tiny.gguf
plan_for chunks --vram 60MB --kv-type f16 --prefill-chunk 5 --sequences 3 --resident-layers 3 tiny.gguf
plan_for parts --vram 6MB --kv-type q8_0 --cut 64KiB tiny.gguf
for name in resident chunks parts; do
    on_cpu $model --plan $name.json --output cpu_$name.jsonl
    on_gpu 0 "14 answered" $model --plan $name.json --output gpu.jsonl
    near cpu_$name.jsonl gpu.jsonl 8 "plan $name"
done

on_gpu 2 "--threads has no effect" $model --threads 2 --output gpu.jsonl

# ---- killed in the middle, and gone on ----
rm -f gpu.jsonl*
[ -z "$standin" ] || export OFLOAD_FAKECUDA_SPEC="sim:vram=64MB,h2d=40MB/s,runtime=1MB"
LD_LIBRARY_PATH=$libraries "$gpu" --device cuda:0 --no-progress --model tiny.gguf \
    --input in.jsonl --output gpu.jsonl --plan parts.json >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1 400); do
    [ "$(wc -l 2>/dev/null <gpu.jsonl || echo 0)" -ge 2 ] && break
    sleep 0.02
done
kill -9 "$pid"
wait "$pid" 2>/dev/null
before=$(wc -l <gpu.jsonl)
if [ -n "$standin" ] && { [ "$before" -lt 2 ] || [ "$before" -ge 14 ]; }; then fail "killed after $before lines"; fi
[ -z "$standin" ] || export OFLOAD_FAKECUDA_SPEC="sim:vram=64MB,h2d=2GB/s,runtime=1MB"
on_gpu 0 "" --model tiny.gguf --input in.jsonl --output gpu.jsonl --plan parts.json
near cpu_parts.jsonl gpu.jsonl 8 "gone on after a kill"

# ---- no memory on the device: less is planned; calls that fail are told ----
if [ -n "$standin" ]; then
    OFLOAD_FAKECUDA_FAIL="cudaMalloc:10:2" on_gpu 0 "14 answered" $model $f32 --output gpu.jsonl
    same cpu.jsonl gpu.jsonl "an allocation failed"
    OFLOAD_FAKECUDA_FAIL="cublasGemmEx:40:14" on_gpu 1 "cublasGemmEx failed" $model --output gpu.jsonl
    OFLOAD_FAKECUDA_FAIL="cublasGemmEx:200:14" on_gpu 1 "cublasGemmEx failed" $model --output gpu.jsonl --plan parts.json
    OFLOAD_FAKECUDA_FAIL="cublasCreate:1:3" on_gpu 1 "no memory for the library" $model --output gpu.jsonl --plan parts.json
    OFLOAD_FAKECUDA_FAIL="cudaEventSynchronize:3:700" on_gpu 1 "ofload-batch:" $model --output gpu.jsonl --plan parts.json
fi

# ---- weights that are no numbers: error lines, on both ----
size=$(stat -c %s tiny.gguf)
{ head -c $((size / 2)) tiny.gguf; head -c $((size - size / 2)) /dev/zero | tr '\0' '\377'; } >broken.gguf
broken="--input in.jsonl --plan broken.json --quiet --overwrite"
plan_for broken --vram 60MB --kv-type f16 broken.gguf
"$cpu" --device "sim:vram=64MB,h2d=2GB/s" --model broken.gguf $broken --output cpu_broken.jsonl >/dev/null 2>&1
on_gpu 4 "" --model broken.gguf $broken --output gpu_broken.jsonl
same cpu_broken.jsonl gpu_broken.jsonl "broken weights"
[ "$(grep -c no_finite_logit gpu_broken.jsonl)" -eq 14 ] || fail "broken weights gave an answer"

# ---- no device, no driver ----
expect_no_device() { # TEXT COMMAND…
    local text=$1 got
    shift
    said=$("$@" --device cuda:0 $model --output none.jsonl 2>&1)
    got=$?
    [ "$got" -eq 1 ] || fail "status $got without a device: $said"
    case $said in *"$text"*) ;; *) fail "no \"$text\": $said" ;; esac
}
if [ -n "$standin" ]; then
    LD_LIBRARY_PATH=$libraries OFLOAD_FAKECUDA_DEVICES=0 expect_no_device "device" "$gpu"
    LD_LIBRARY_PATH=$libraries OFLOAD_FAKECUDA_DRIVER=0 expect_no_device "driver" "$gpu"
fi
[ -e /proc/driver/nvidia/version ] || expect_no_device "cuda" "$cpu"

# ---- a published model ----
smollm2=${OFLOAD_MODEL_DIR:-$HOME/.cache/ofload}/SmolLM2-135M-Instruct.Q4_1.gguf
if [ -e "$smollm2" ]; then
    for text in "The capital of France is" "Water boils at" "Once upon a time there was a" "def add(a, b):"; do
        printf '{"custom_id":"%s","method":"POST","url":"/v1/completions","body":{"model":"any","prompt":"%s","max_tokens":12,"temperature":0,"logprobs":2}}\n' "$text" "$text"
    done >real.jsonl
    plan_for real --vram 150MB --kv-type f16 "$smollm2"
    [ -z "$standin" ] || export OFLOAD_FAKECUDA_SPEC="sim:vram=256MB,h2d=2GB/s,runtime=1MB"
    real="--input real.jsonl --plan real.json --overwrite"
    SPEC="sim:vram=256MB,h2d=2GB/s" on_cpu --model "$smollm2" $real --output real_cpu.jsonl
    on_gpu 0 "4 answered" --model "$smollm2" $real --output real_gpu.jsonl
    near real_cpu.jsonl real_gpu.jsonl 3 SmolLM2
else
    echo "SmolLM2 is not at hand: that part was not run"
fi
[ "$failed" -eq 0 ] && echo "the GPU back end answers as the CPU's does"
exit "$failed"
