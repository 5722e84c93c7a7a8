#!/usr/bin/env bash
# The ready-made files for Slurm and Kubernetes without either: their scripts are run as the engine would run them, shard after shard, stopped and
# gone on with; and k8s-job.yaml says what its script relies on. tests/test_slurm.sh runs a real Slurm.
set -u
root=$1 build=$2 failed=0
[ -x "$build/bin/ofload-batch" ] && [ -x "$build/bin/ofload-bench" ] || { echo "the programs are not built"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export SOURCE_DATE_EPOCH=1700000000
unset SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT JOB_COMPLETION_INDEX OFLOAD_SHARD_COUNT
complain() { echo "$*"; failed=1; }

"$build/bin/ofload-bench" mkmodel --layers 2 --hidden 64 --heads 2 --ffn 96 --type bf16 --output MODEL >/dev/null || exit 1
for i in $(seq 1 18); do
    printf '{"custom_id":"q%d","url":"/v1/completions","body":{"prompt":"Question %d","max_tokens":4}}\n' "$i" "$i"
done >IN.jsonl
echo 'no request' >>IN.jsonl
# With a machine given nothing is measured, which takes the longest here.
"$build/bin/ofload-bench" link --device sim:vram=64MiB,h2d=2GB/s,clock=virtual --save "$dir/machine.json" >/dev/null || exit 1
device="--device sim:vram=64MiB,h2d=2GB/s --machine $dir/machine.json --device-flops 1TFLOP/s --threads 1"
"$build/bin/ofload-batch" --model MODEL $device --input IN.jsonl --output alone.jsonl --ordered --quiet
[ $? = 4 ] || complain "the run alone failed"

# What the files start: the real program, or one that stops early, that says how it was called, that waits for a signal.
mkdir bin
cat >bin/ofload-batch <<EOF
#!/usr/bin/env bash
echo "\$*" >>"$dir/calls"
case \${STUB:-} in
"") exec "$build/bin/ofload-batch" "\$@" $device --quiet ;;
wait) trap 'exit 75' TERM USR1; touch "$dir/waiting"; while :; do sleep 0.05; done ;;
*) exit "\$STUB" ;;
esac
EOF
printf '#!/usr/bin/env bash\necho "$*" >>"%s/requeued"\n' "$dir" >bin/scontrol
chmod +x bin/*
export PATH=$dir/bin:$PATH

# ends_with STATUS COMMAND...
ends_with() {
    local wanted=$1 got
    shift
    "$@" >out.txt 2>&1
    got=$?
    [ "$got" -eq "$wanted" ] || complain "status $got instead of $wanted: $* (STUB=${STUB:-}): $(cat out.txt)"
}
# signalled SIGNAL STATUS COMMAND...: sent to the script alone, once the driver runs.
signalled() {
    local signal=$1 wanted=$2 pid got tries=200
    shift 2
    rm -f waiting
    STUB=wait "$@" >out.txt 2>&1 &
    pid=$!
    while [ ! -e waiting ] && ((tries-- > 0)); do sleep 0.05; done
    kill -"$signal" "$pid"
    wait "$pid"
    got=$?
    [ "$got" -eq "$wanted" ] || complain "status $got instead of $wanted after $signal: $*"
}
merged() { # merged NAME
    ends_with 4 "$build/bin/ofload-batch" merge --input IN.jsonl --output "$1.jsonl" OUT.shard-*-of-00004.jsonl
    cmp alone.jsonl "$1.jsonl" || complain "$1: not the bytes of one run"
    rm -f OUT.*
}

# ---- Slurm ----
slurm() { SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$1 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_STEP=1 \
    bash "$root/examples/batch/slurm.sbatch" --model MODEL --input IN.jsonl --output OUT.jsonl; }
bash -n "$root/examples/batch/slurm.sbatch" || complain "slurm.sbatch cannot be read"
for i in 0 1 3; do ends_with 0 slurm "$i"; done
ends_with 4 slurm 2 # the bad line is its
merged slurm
signalled USR1 75 env SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=2 bash "$root/examples/batch/slurm.sbatch" --model MODEL
[ "$(cat requeued 2>/dev/null)" = "requeue 7_2" ] || complain "time is up: not queued again"
rm -f requeued
signalled TERM 75 env SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=2 bash "$root/examples/batch/slurm.sbatch" --model MODEL
[ ! -e requeued ] || complain "cancelled, and queued again all the same"
for status in 1 3 75; do STUB=$status ends_with $status slurm 0; done
[ ! -e requeued ] || complain "failed, and queued again"
[ "$(tail -n 1 calls)" = "--model MODEL --input IN.jsonl --output OUT.jsonl --shard auto" ] || complain "called with: $(tail -n 1 calls)"

# ---- Kubernetes ----
file=$root/examples/batch/k8s-job.yaml
awk '/^ *- \|$/ { on = 1; next } on && /^              / { print substr($0, 15); next } { on = 0 }' "$file" | sed "s|/data/|$dir/|g" >pod.sh
grep -q 'ofload-batch --model' pod.sh || complain "no script found in k8s-job.yaml"
pod() { JOB_COMPLETION_INDEX=$1 OFLOAD_SHARD_COUNT=4 sh -c "$(cat pod.sh)"; }
for i in 0 1 2 3; do ends_with 0 pod "$i"; done
merged kubernetes
signalled TERM 75 sh -c "$(cat pod.sh)"
for status in 1 2 3 75; do STUB=$status ends_with $status pod 0; done
if python3 -c 'import yaml' 2>/dev/null; then
    python3 - "$file" <<'EOF' || complain "k8s-job.yaml is not what its script relies on"
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))["spec"]
pod = job["template"]["spec"]
container = pod["containers"][0]
rules = job["podFailurePolicy"]["rules"]
by_status = {status: rule["action"] for rule in rules for status in rule.get("onExitCodes", {}).get("values", [])}
names = {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule}
assert job["completionMode"] == "Indexed" and pod["restartPolicy"] == "Never"
assert {"name": "OFLOAD_SHARD_COUNT", "value": str(job["completions"])} in container["env"]
assert by_status == {75: "Ignore", 2: "FailJob", 3: "FailJob"} and names == {container["name"]}
assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
EOF
else
    echo "k8s-job.yaml was not parsed: python3 has no yaml"
fi
exit "$failed"
