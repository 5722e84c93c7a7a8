#!/usr/bin/env bash
# Input files as the public documentation of batch runners shows them (OpenAI's batch guide, vLLM's run-batch): the same keys, order and spacing,
# model names that are not ours, mixed ids, blank lines. They run as they are; what asks for another kind of answer becomes an error line.
set -u
build=$2 failed=0
batch=$build/bin/ofload-batch bench=$build/bin/ofload-bench
[ -x "$batch" ] && [ -x "$bench" ] || { echo "the programs are not built"; exit 77; }
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
complain() { echo "$*"; failed=1; }

"$bench" mkmodel --layers 2 --hidden 64 --heads 2 --ffn 96 --type bf16 --output tiny.gguf >/dev/null || exit 1
"$bench" link --device sim:vram=64MiB,h2d=2GB/s,clock=virtual --save machine.json >/dev/null || exit 1
# answers FILE STATUS: runs it; its answers are in FILE.out.
answers() {
    local got
    "$batch" --model tiny.gguf --device sim:vram=64MiB,h2d=2GB/s --machine machine.json --device-flops 1TFLOP/s --threads 1 --ordered --quiet \
        --input "$1" --output "$1.out" 2>said.txt
    got=$?
    [ "$got" = "$2" ] || complain "$1: status $got instead of $2: $(cat said.txt)"
    jq -es 'all(.[]; has("id") and has("custom_id") and has("response") and has("error"))' "$1.out" >/dev/null ||
        complain "$1: not the documented keys"
}
# holds FILE TEXT JQ: over all its lines.
holds() { [ "$(jq -cs "$3" "$1.out")" = "$2" ] || complain "$1: $3 is $(jq -cs "$3" "$1.out") instead of $2"; }

# Chat completions with a system and a user message, a model's name as on its hub, the newer name of the limit.
cat >chat.jsonl <<'EOF'
{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "meta-llama/Meta-Llama-3-8B-Instruct", "messages": [{"role": "system", "content": "You are a patient teacher."},{"role": "user", "content": "Good morning!"}],"max_completion_tokens": 1000}}
{"custom_id": "request-2", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "meta-llama/Meta-Llama-3-8B-Instruct", "messages": [{"role": "system", "content": "You are an impatient teacher."},{"role": "user", "content": "Good morning!"}],"max_completion_tokens": 1000}}
EOF
answers chat.jsonl 0
holds chat.jsonl '["request-1","request-2"]' '[.[].custom_id]'
holds chat.jsonl '[[200,"chat.completion","assistant",true,true],[200,"chat.completion","assistant",true,true]]' \
    '[.[].response | [.status_code, .body.object, .body.choices[0].message.role, (.body.choices[0].finish_reason | . == "stop" or . == "length"),
      (.body.usage | .total_tokens == .prompt_tokens + .completion_tokens and .completion_tokens <= 1000)]]'

# The older name, another model, what JSON writers do to text, ids of every kind, Windows line ends, a blank last line and one between.
printf '%s\r\n' \
    '{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-3.5-turbo-0125", "messages": [{"role": "user", "content": "\u00dcber \u4e16\u754c \ud83d\ude00"}],"max_tokens": 20}}' \
    '' \
    '{"custom_id":"task/ü 7","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","temperature":0.1,"seed":42,"messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"One "},{"type":"text","text":"question"}]},{"role":"assistant","content":"Yes?"},{"role":"user","content":"Why?"}],"max_completion_tokens":9,"top_p":0.95,"n":1,"stream":false,"user":"u-1"}}' \
    '{"custom_id": "5f1d7a84-0000-4000-8000-1234567890ab", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "NousResearch/Hermes-3-Llama-3.1-8B", "messages": [{"role": "user", "content": "Count."}], "max_tokens": 5, "stop": ["\n\n", "END"], "response_format": {"type": "text"}}}' \
    '' >mixed.jsonl
answers mixed.jsonl 0
holds mixed.jsonl '["request-1","task/ü 7","5f1d7a84-0000-4000-8000-1234567890ab"]' '[.[].custom_id]'
holds mixed.jsonl 'true' 'all(.[]; .response.status_code == 200 and .error == null)'
holds mixed.jsonl 'true' '.[0].response.body.usage.completion_tokens <= 20 and .[1].response.body.usage.completion_tokens <= 9'

# Chat and plain completions in one file, no limit given.
cat >plain.jsonl <<'EOF'
{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "meta-llama/Llama-2-7b-hf", "messages": [{"role": "user", "content": "Good evening!"}]}}
{"custom_id": "request-2", "method": "POST", "url": "/v1/completions", "body": {"model": "meta-llama/Llama-2-7b-hf", "prompt": "There once was"}}
EOF
answers plain.jsonl 0
holds plain.jsonl '["chat.completion","text_completion"]' '[.[].response.body.object]'

# Other endpoints of the same format, and a request that a batch cannot take: each its own line, the rest is answered.
cat >other.jsonl <<'EOF'
{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "intfloat/e5-mistral-7b-instruct", "messages": [{"role": "user", "content": "First."}], "max_completion_tokens": 4}}
{"custom_id": "request-2", "method": "POST", "url": "/v1/embeddings", "body": {"model": "intfloat/e5-mistral-7b-instruct", "input": "A text to embed."}}
{"custom_id": "request-3", "method": "POST", "url": "/v1/score", "body": {"model": "BAAI/bge-reranker-v2-m3", "queries": "Which city?", "documents": ["The one.", "The other."]}}
{"custom_id": "request-4", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "any", "messages": [{"role": "user", "content": "Last."}], "stream": true}}
{"custom_id": "request-5", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "any", "messages": [{"role": "user", "content": "Last."}], "max_tokens": 4}}
EOF
answers other.jsonl 4
holds other.jsonl '[null,2,3,4,null]' '[.[] | .error.line]'
holds other.jsonl '[null,"invalid_url","invalid_url","unsupported_parameter",null]' '[.[] | .error.code]'
exit "$failed"
