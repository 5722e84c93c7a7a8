#!/usr/bin/env bash
# ofload-batch from the command line, on a small generated model: statuses, messages, resuming, shards and merge, plans, the same bytes wherever the weights are.
set -u
root=$1 build=$2 failed=0
batch=$build/bin/ofload-batch bench=$build/bin/ofload-bench
[ -x "$batch" ] && [ -x "$bench" ] || { echo "the programs are not built"; exit 77; }
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export SOURCE_DATE_EPOCH=1700000000
unset SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT JOB_COMPLETION_INDEX

# expect STATUS TEXT COMMAND...: the command ends so, and what it says contains TEXT.
expect() {
    local status=$1 text=$2 got
    shift 2
    said=$("$@" 2>&1)
    got=$?
    if [ "$got" -ne "$status" ]; then echo "status $got instead of $status: $*"; echo "$said"; failed=1; fi
    case $said in *"$text"*) ;; *) echo "no \"$text\" from: $*"; echo "$said"; failed=1 ;; esac
}
same() { cmp -s "$1" "$2" || { echo "$1 and $2 differ ($3)"; failed=1; }; }

"$bench" mkmodel --architecture llama --layers 12 --hidden 128 --heads 4 --kv-heads 2 --ffn 384 --type bf16 --output tiny.gguf >/dev/null || exit 1
for i in $(seq 1 23); do
    printf '{"custom_id":"q%d","method":"POST","url":"/v1/chat/completions","body":{"model":"any","messages":[{"role":"user","content":"Question %d?"}],"max_tokens":%d,"temperature":%d}}\n' \
        "$i" "$i" $((i % 7 + 2)) $((i % 2))
done >in.jsonl
all="--model tiny.gguf --device sim:vram=64MiB,h2d=2GB/s"
little="$all --vram 2MiB"

# ---- wording ----
expect 2 "--model MODEL is needed" "$batch" --input in.jsonl --output o.jsonl
expect 2 "--output OUT.jsonl is needed" "$batch" $all --input in.jsonl
expect 2 "is no option" "$batch" $all --input in.jsonl --output o.jsonl --queue 5
expect 2 "no effect" "$batch" $all --input in.jsonl --output o.jsonl --overwrite --retry-errors
expect 2 "no effect" "$batch" $all --input in.jsonl --output o.jsonl --dry-run --ordered
expect 2 "no effect beside --plan" "$batch" $all --input in.jsonl --output o.jsonl --plan p.json --context 50
expect 2 "--shard" "$batch" $all --input in.jsonl --output o.jsonl --shard 3/3
expect 2 "no Slurm array" "$batch" $all --input in.jsonl --output o.jsonl --shard auto
expect 2 "no whole number" "$batch" $all --input in.jsonl --output o.jsonl --threads many
# ofload-plan says the same of the options that both have; what needs no device or input is said before either is opened.
alike() {
    expect 2 "$1" "$batch" --model tiny.gguf --input not-there.jsonl --output o.jsonl --device none-such "${@:2}"
    expect 2 "$1" "$build/bin/ofload-plan" --device none-such "${@:2}" tiny.gguf
}
alike "--sequences: " --sequences 0
alike "--sequences: " --sequences -1
alike "--prefill-chunk: " --prefill-chunk 0
alike "--context: " --context 0
alike "--vram: " --vram 0
alike "--host-ram: " --host-ram 0
alike "--headroom: " --headroom 100%
alike "--cut: " --cut 0
alike "--resident-layers: 13 are too many: the model has 12" --resident-layers 13
expect 2 "--resident-layers: 13 are" "$build/bin/ofload-plan" --vram 64MB --resident-layers 13 --sweep context=16..32 tiny.gguf
expect 2 "is more than the" "$batch" $all --input in.jsonl --output o.jsonl --vram 1GB
expect 2 "no effect on whole layers" "$batch" $all --input in.jsonl --output o.jsonl --cut 1MB --resident-layers 2
expect 0 "usage: ofload-batch" "$batch" --help
expect 0 "ofload-batch" "$batch" --version

# ---- what cannot be ----
expect 1 "not-there.gguf" "$batch" --model not-there.gguf --device sim:vram=64MiB,h2d=2GB/s --input in.jsonl --output o.jsonl
head -c 5000 tiny.gguf >cut.gguf
expect 1 "cut.gguf" "$batch" --model cut.gguf --device sim:vram=64MiB,h2d=2GB/s --input in.jsonl --output o.jsonl
expect 3 "the longest request, line" "$batch" $all --vram 500KiB --input in.jsonl --output o.jsonl
expect 3 "" "$batch" $all --input in.jsonl --output o.jsonl --sequences 1000000
expect 1 "sim:" "$batch" --model tiny.gguf --device cuda:99 --input in.jsonl --output o.jsonl
expect 1 "not-there.jsonl" "$batch" $all --input not-there.jsonl --output o.jsonl
expect 1 "is the input file itself" "$batch" $all --input in.jsonl --output ./in.jsonl
expect 1 "cannot be opened" "$batch" $all --input in.jsonl --output no/folder/o.jsonl
{ cat in.jsonl; head -1 in.jsonl; } >twice.jsonl
expect 1 "is on line 1 and again on line 24" "$batch" $all --input twice.jsonl --output o.jsonl
if grep -q '^OFLOAD_CUDA:STRING=OFF' "$build/CMakeCache.txt"; then no_gpu="built without CUDA"; else no_gpu="no NVIDIA driver"; fi
if [ ! -e /proc/driver/nvidia/version ]; then
    expect 1 "$no_gpu" "$batch" --model tiny.gguf --device cuda:0 --input in.jsonl --output o.jsonl
    expect 1 "$no_gpu" "$batch" --model tiny.gguf --input in.jsonl --output o.jsonl # the default
fi
expect 2 "--kv-type: \"f8\" is none of f16|bf16|f32|q8_0" "$batch" $all --input in.jsonl --output o.jsonl --kv-type f8
expect 2 "clock=virtual" "$batch" --model tiny.gguf --device sim:vram=64MiB,h2d=2GB/s,clock=virtual --input in.jsonl --output o.jsonl

# ---- what is in use is never written over ----
cp tiny.gguf victim.gguf
victim="--model victim.gguf --device sim:vram=64MiB,h2d=2GB/s"
ln -s victim.gguf link.gguf
expect 1 "is the model" "$batch" $victim --input in.jsonl --output ./link.gguf --overwrite
expect 1 "is the model" "$batch" $victim --input in.jsonl --output o.jsonl --report link.gguf
expect 1 "a file of weights" "$batch" $all --input in.jsonl --output o.jsonl --report victim.gguf
expect 2 "is the model" "$build/bin/ofload-plan" --vram 64MB --overhead 1MB --output link.gguf victim.gguf
same tiny.gguf victim.gguf "a model that was named as output"
expect 1 "is the output" "$batch" $all --input in.jsonl --output o.jsonl --report ./o.jsonl
expect 1 "state file" "$batch" $all --input in.jsonl --output o.jsonl --report "$PWD/o.jsonl.state.json"
expect 1 "is the output" "$batch" $all --input in.jsonl --output r.json.new --report r.json
cp in.jsonl o.jsonl.new
expect 1 "is the input file itself" "$batch" $all --input o.jsonl.new --output o.jsonl --ordered
expect 1 "is the input file itself" "$batch" merge --input o.jsonl.new --output o.jsonl in.jsonl
expect 1 "is one of the parts" "$batch" merge --input in.jsonl --output in1.jsonl --overwrite ./in1.jsonl
same in.jsonl o.jsonl.new "an input that was named as a temporary file"
rm o.jsonl.new
mkfifo pipe
expect 1 "no regular file" timeout -s KILL 20 "$batch" $all --input pipe --output o.jsonl
expect 1 "no regular file" "$batch" $all --input in.jsonl --output o.jsonl --report pipe
expect 1 "cannot be written" "$batch" $all --input in.jsonl --output o.jsonl --report no/folder/r.json
expect 1 "no regular file" "$build/bin/ofload-plan" --vram 64MB --overhead 1MB --quiet --output pipe tiny.gguf
expect 1 "no regular file" "$bench" mkmodel --layers 1 --hidden 64 --ffn 64 --output pipe
[ -p pipe ] || { echo "a pipe was replaced by a file"; failed=1; }
for left in o.jsonl o.jsonl.state.json; do [ ! -e "$left" ] || { echo "$left was left behind"; failed=1; }; done

# ---- runs ----
expect 0 "at most" "$batch" $all --input in.jsonl --output o.jsonl --dry-run
[ ! -e o.jsonl ] || { echo "a dry run made an output"; failed=1; }
expect 0 "23 answered" "$batch" $all --input in.jsonl --output a.jsonl --ordered --report r.json
[ "$(jq -s 'length' a.jsonl)" = 23 ] || { echo "not 23 answers"; failed=1; }
[ "$(jq -r '[.schema, .requests.done, .preempted, .simulated, (.peak_device_bytes <= .plan_bytes), (.plan_bytes <= .budget_bytes)] | join(" ")' r.json)" = "ofload.report/1 23 0 true true true" ] ||
    { echo "report:"; cat r.json; failed=1; }
expect 0 "0 answered" "$batch" $all --input in.jsonl --output a.jsonl
expect 1 "--kv-type was" "$batch" $all --input in.jsonl --output a.jsonl --kv-type f32
expect 0 "23 answered" "$batch" $all --input in.jsonl --output a.jsonl --overwrite --ordered
expect 0 '"schema"' "$batch" $all --input in.jsonl --output j.jsonl --json --no-progress
said=$("$batch" $all --input in.jsonl --output quiet.jsonl --quiet --no-progress 2>&1)
[ -z "$said" ] || { echo "--quiet said: $said"; failed=1; }

# Messages of a program that was started without standard streams do not end in its files.
"$batch" $all --input in.jsonl --output closed.jsonl --ordered <&- >&- 2>&-
[ $? = 1 ] || { echo "a summary that could not be written is no failure"; failed=1; }
same a.jsonl closed.jsonl "no standard streams"
expect 0 "23 answered" "$batch" $all --input in.jsonl --output latency.jsonl --ordered --objective latency
same a.jsonl latency.jsonl "planned for latency"
# More rows in one matrix than the steps' room is wide, one token at a time.
"$bench" mkmodel --layers 1 --hidden 8 --heads 1 --ffn 8 --vocab 3000 --output narrow.gguf >/dev/null || exit 1
expect 0 "23 answered" "$batch" --model narrow.gguf --device sim:vram=64MiB,h2d=2GB/s --vram 300kB --input in.jsonl --output narrow.jsonl --sequences 1 --prefill-chunk 1
mkdir elsewhere
: >elsewhere/linked.jsonl
ln -s elsewhere/linked.jsonl linked.jsonl
expect 0 "23 answered" "$batch" $all --input in.jsonl --output linked.jsonl --ordered
[ -L linked.jsonl ] || { echo "a link was replaced by a file"; failed=1; }
same a.jsonl elsewhere/linked.jsonl "output behind a link"

# The same bytes whatever is resident, however the steps are filled.
expect 0 "23 answered" "$batch" $little --input in.jsonl --output streamed.jsonl --ordered --report streamed.json
same a.jsonl streamed.jsonl "all resident, most streamed"
[ "$(jq '.measured.link_bytes_per_second > 0' streamed.json)" = true ] || { echo "nothing was streamed"; failed=1; }
expect 0 "23 answered" "$batch" $all --input in.jsonl --output one.jsonl --ordered --sequences 1 --prefill-chunk 5
same a.jsonl one.jsonl "many at once, one at a time"

# A plan made elsewhere.
"$build/bin/ofload-plan" --device sim:vram=64MiB,h2d=2GB/s --objective throughput --context 64 --kv-type f16 --queue 23 --output p.json tiny.gguf >/dev/null 2>&1 || { echo "ofload-plan failed"; failed=1; }
expect 0 "23 answered" "$batch" $all --input in.jsonl --output planned.jsonl --plan p.json
"$build/bin/ofload-plan" --device sim:vram=64MiB,h2d=2GB/s --kv-type f8 --quiet --output f8.json tiny.gguf || { echo "ofload-plan plans no f8"; failed=1; }
expect 1 "f8 is not supported" "$batch" --model tiny.gguf --device sim:vram=64MiB,h2d=2GB/s --input in.jsonl --output f8.jsonl --plan f8.json
"$bench" mkmodel --architecture qwen2 --layers 2 --hidden 64 --heads 2 --ffn 64 --output other.gguf >/dev/null
expect 1 "" "$batch" --model other.gguf --device sim:vram=64MiB,h2d=2GB/s --input in.jsonl --output other.jsonl --plan p.json

# Less is free than when machine or plan were made: planned for what is there, or refused before anything is loaded.
"$bench" link --device sim:vram=1GB,h2d=2GB/s,clock=virtual --save large.json >/dev/null
expect 0 "1.00 GB were to be used, 6.0 MB are there now" "$batch" --model tiny.gguf --device sim:vram=6MB,h2d=2GB/s --machine large.json --input in.jsonl --output shrunk.jsonl --ordered
same a.jsonl shrunk.jsonl "planned for what is there"
expect 1 "MB are free; plan with less memory" "$batch" --model tiny.gguf --device sim:vram=4MB,h2d=2GB/s --input in.jsonl --output refused.jsonl --plan p.json
cp a.jsonl kept.jsonl
cp a.jsonl.state.json kept.state
expect 1 "MB are free" "$batch" --model tiny.gguf --device sim:vram=4MB,h2d=2GB/s --input in.jsonl --output a.jsonl --plan p.json --overwrite
same a.jsonl kept.jsonl "an output that was to be written over, when loading failed"
same a.jsonl.state.json kept.state "its state"

# A signal is heeded while the link is measured, however slow it is, and leaves nothing behind.
expect 75 "" timeout --preserve-status -k 60 2 "$batch" --model tiny.gguf --device sim:vram=64MiB,h2d=1B/s --input in.jsonl --output slow.jsonl
[ ! -e slow.jsonl ] || { echo "a run that was stopped while it measured left an output"; failed=1; }

# Error lines, retried.
{ cat in.jsonl; echo 'no request'; echo '{"custom_id":"long","url":"/v1/completions","body":{"prompt":"x","max_tokens":5000}}'; } >some.jsonl
expect 4 "2 failed" "$batch" $all --input some.jsonl --output some-out.jsonl
[ "$(jq -s '[.[] | select(.error != null) | .error.line] | sort == [24, 25]' some-out.jsonl)" = true ] || { echo "error lines"; failed=1; }
expect 4 "2 failed" "$batch" $all --input some.jsonl --output some-out.jsonl --retry-errors
[ "$(jq -s 'length' some-out.jsonl)" = 25 ] || { echo "retried errors doubled"; failed=1; }

# ---- shards ----
for i in 0 1; do expect 0 "answered" "$batch" $all --input in.jsonl --output s.jsonl --shard $i/3; done
expect 1 "in no part" "$batch" merge --input in.jsonl --output m.jsonl s.shard-*.jsonl
SLURM_ARRAY_TASK_ID=12 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 expect 0 "answered" "$batch" $all --input in.jsonl --output s.jsonl --shard auto
[ ! -e m.jsonl ] || { echo "a failed merge left an output"; failed=1; }
expect 0 "23 answers" "$batch" merge --input in.jsonl --output m.jsonl s.shard-*.jsonl
same a.jsonl m.jsonl "one run, three shards"
said=$("$batch" merge --json --overwrite --input in.jsonl --output m.jsonl s.shard-*.jsonl)
[ "$(jq -c . <<<"$said")" = '{"requests":{"total":23,"done":23,"failed":0},"output":"m.jsonl"}' ] || { echo "merge --json: $said"; failed=1; }
said=$("$batch" merge --quiet --overwrite --input in.jsonl --output m.jsonl s.shard-*.jsonl 2>&1)
[ -z "$said" ] || { echo "merge --quiet said: $said"; failed=1; }
expect 1 "standard output" bash -c "'$batch' merge --overwrite --input in.jsonl --output m.jsonl s.shard-*.jsonl >/dev/full"
expect 1 "there already" "$batch" merge --input in.jsonl --output m.jsonl s.shard-*.jsonl
expect 1 "a second time" "$batch" merge --input in.jsonl --output m2.jsonl s.shard-*.jsonl s.shard-00000-of-00003.jsonl
head -c -1 s.shard-00001-of-00003.jsonl >torn.jsonl
expect 1 "ends in the middle of a line" "$batch" merge --input in.jsonl --output m2.jsonl s.shard-00000-of-00003.jsonl torn.jsonl s.shard-00002-of-00003.jsonl
expect 1 "is the input file itself" "$batch" merge --input in.jsonl --output in.jsonl a.jsonl
expect 2 "are needed" "$batch" merge --input in.jsonl --output m3.jsonl

# ---- killed and gone on, with the real loop ----
"$batch" $little --input in.jsonl --output k.jsonl --quiet &
pid=$!
sleep 0.6
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
expect 0 "of 23 requests" "$batch" $little --input in.jsonl --output k.jsonl --ordered
same a.jsonl k.jsonl "one run, a killed one"

# ---- gone on with another model in the place of the first: other weights under the same headers ----
"$bench" mkmodel --architecture llama --layers 12 --hidden 128 --heads 4 --kv-heads 2 --ffn 384 --type bf16 --seed 77 --output tuned.gguf >/dev/null || exit 1
cmp -s <(head -c 4000 tiny.gguf) <(head -c 4000 tuned.gguf) || { echo "the headers of the tuned model differ"; failed=1; }
mkdir moved
cp tiny.gguf moved/renamed.gguf
moved="--model moved/renamed.gguf --device sim:vram=64MiB,h2d=2GB/s"
head -5 a.jsonl >half.jsonl
cp a.jsonl.state.json half.jsonl.state.json
cp half.jsonl kept.jsonl
cp tuned.gguf moved/renamed.gguf
expect 1 "the content of the weights was" "$batch" $moved --input in.jsonl --output half.jsonl
same half.jsonl kept.jsonl "an output that another model was to go on with"
cp tiny.gguf moved/renamed.gguf
expect 0 "5 requests are done already" "$batch" $moved --input in.jsonl --output half.jsonl --ordered
[ "$(jq -s length half.jsonl)" = 23 ] || { echo "the same model elsewhere did not go on"; failed=1; }
expect 0 "23 answered" "$batch" --model tuned.gguf --device sim:vram=64MiB,h2d=2GB/s --input in.jsonl --output tuned.jsonl
[ "$(jq -r .response.body.system_fingerprint a.jsonl tuned.jsonl | sort -u | wc -l)" = 2 ] || { echo "two models have one fingerprint"; failed=1; }
jq 'del(.weights_hash)' a.jsonl.state.json >half.jsonl.state.json
expect 1 'does not say "weights_hash"; give --overwrite' "$batch" $all --input in.jsonl --output half.jsonl
exit "$failed"
