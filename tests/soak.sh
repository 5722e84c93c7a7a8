#!/usr/bin/env bash
# tests/soak.sh [MINUTES [RESULT.json]]: ofload-batch on the simulated device for 30 minutes, all tiers in use, requests without end. It
# fails where memory or handles grow, device memory exceeds the plan, or an answer is an error; where nothing else kept the processors busy, also
# where the pace of one quarter is not that of another. OFLOAD_BUILD: the build folder; the result goes to bench/results/soak.json.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
minutes=${1:-30} result=${2:-$root/bench/results/soak.json} bin=${OFLOAD_BUILD:-$root/build}/bin
device=sim:vram=8MiB,h2d=500MB/s,pinnable=4MiB
command -v jq >/dev/null || { echo "skipped: no jq"; exit 77; }
[[ $minutes =~ ^[1-9][0-9]*$ ]] || { sed -n 2,4p "${BASH_SOURCE[0]}"; exit 2; }
[ -x "$bin/ofload-batch" ] || { echo "$bin/ofload-batch is not there: build first, or name the build folder by OFLOAD_BUILD" >&2; exit 1; }
folder=$(mktemp -d) pid=
trap '[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1

"$bin/ofload-bench" mkmodel --output model.gguf --layers 6 --hidden 256 --ffn 768 --heads 4 --vocab 512 --quiet >/dev/null || exit 1
awk -v n=$((minutes * 4000)) 'BEGIN { for (i = 1; i <= n; i++)
    printf "{\"custom_id\":\"r%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"m\",\"prompt\":\"%d and %d\",\"max_tokens\":%d,\"temperature\":0.7,\"seed\":%d}}\n",
           i, i, i * 7919 % 1000, 8 + i % 25, i }' >in.jsonl
"$bin/ofload-batch" --device "$device" --model model.gguf --input in.jsonl --output out.jsonl --sequences 8 --report report.json --no-progress >said 2>&1 &
pid=$!

# Time, memory of its own in KiB, handles, threads, bytes answered, its ticks of the processor, those of the whole machine.
sample() {
    local anon threads ticks all
    anon=$(awk '/^RssAnon/ { print $2 }' "/proc/$pid/status") || return 1
    threads=$(awk '/^Threads/ { print $2 }' "/proc/$pid/status")
    ticks=$(awk '{ print $14 + $15 }' "/proc/$pid/stat")
    all=$(awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 }' /proc/stat)
    [ -n "$anon" ] && echo "$SECONDS $anon $(find "/proc/$pid/fd" -mindepth 1 2>/dev/null | wc -l) $threads $(stat -c %s out.jsonl 2>/dev/null || echo 0) $ticks $all"
}
begun=$SECONDS
while kill -0 "$pid" 2>/dev/null && [ $((SECONDS - begun)) -lt $((minutes * 60)) ]; do
    sleep 2
    [ -s out.jsonl ] && sample >>samples # the first answer: all is loaded
done
kill -TERM "$pid" 2>/dev/null
wait "$pid"
status=$?
pid=
[ "$status" -eq 75 ] || { echo "FAILED: exit $status instead of 75, stopped by a signal"; tail -5 said; exit 1; }
[ "$(wc -l <samples)" -ge 20 ] || { echo "FAILED: too few samples"; exit 1; }

# Of each quarter: median memory, most handles and threads, bytes answered a second, and the share of the machine that others took.
awk '{ t[NR] = $1; m[NR] = $2; h[NR] = $3; n[NR] = $4; b[NR] = $5; own[NR] = $6; all[NR] = $7 }
function median(from, to,   i, j, k, a, c) { c = 0; for (i = from; i <= to; i++) a[++c] = m[i]
    for (i = 2; i <= c; i++) { k = a[i]; for (j = i - 1; j > 0 && a[j] > k; j--) a[j + 1] = a[j]; a[j + 1] = k } return a[int((c + 1) / 2)] }
END { for (q = 0; q < 4; q++) { from = int(q * NR / 4) + 1; to = int((q + 1) * NR / 4); most = 0; threads = 0
    for (i = from; i <= to; i++) { if (h[i] > most) most = h[i]; if (n[i] > threads) threads = n[i] }
    seconds = t[to] - t[from]; busy = all[to] - all[from]
    printf "{\"label\":\"quarter %d\",\"seconds\":%d,\"memory_bytes\":%.0f,\"handles\":%d,\"threads\":%d,\"answered_bytes_per_second\":%.1f,\"others_share\":%.3f}\n",
        q + 1, seconds, median(from, to) * 1024, most, threads, (b[to] - b[from]) / seconds, (busy > 0 ? 1 - (own[to] - own[from]) / busy : 0) } }' samples >rows
failed=$(wc -l <out.jsonl)
jq -s --slurpfile report report.json --arg device "$device" --arg version "$("$bin/ofload-batch" --version | head -1)" --argjson answers "$failed" '
    . as $rows | $report[0] as $r |
    ([$rows[].answered_bytes_per_second] | max / ([min, 1e-9] | max)) as $spread |
    ([$rows[].others_share] | max < 0.1) as $quiet |
    {schema: "ofload.bench/1", name: "soak", version: $version, device: $device, simulated: true, clock: "wall", rows: $rows,
     steps: $r.measured.steps, answers: $answers, error_lines: $r.requests.failed, forecast_step_seconds: $r.estimated.step_seconds,
     measured_step_seconds: $r.measured.step_seconds, error_percent: $r.error_percent, pace_spread: $spread, quiet: $quiet,
     checks: {memory: ($rows[3].memory_bytes <= $rows[1].memory_bytes * 1.02 + 1048576), handles: ($rows[3].handles <= $rows[0].handles),
              threads: ($rows[3].threads <= $rows[0].threads), device_memory: ($r.peak_device_bytes <= $r.budget_bytes),
              no_error_lines: ($r.requests.failed == 0), steady: (if $quiet then $spread < 1.2 else "not judged: the machine was busy with other work" end)}}' \
    rows >"$folder/result" || exit 1
mkdir -p "$(dirname "$result")" && cp "$folder/result" "$result" || exit 1
jq -r '(.rows[] | "\(.label): \(.memory_bytes / 1e6) MB, \(.handles) handles, \(.threads) threads, \(.answered_bytes_per_second) bytes answered a second"),
       "\(.steps) steps, \(.answers) answers; \(.checks)"' "$result"
jq -e '[.checks[] | . != false] | all' "$result" >/dev/null || { echo "FAILED"; exit 1; }
