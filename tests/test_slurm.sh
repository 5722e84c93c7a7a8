#!/usr/bin/env bash
# A real one-node Slurm in a folder of its own: an array of four shards by examples/batch/slurm.sbatch, one task requeued in the middle, one told
# that its time is up, merged by a dependent job; each request is there once. Only where asked for: OFLOAD_TEST_SLURM=1, which installs what is
# missing, as root.
set -u
root=$1 build=$2
[ -n "${OFLOAD_TEST_SLURM:-}" ] || { echo "only with OFLOAD_TEST_SLURM=1, which installs Slurm from the system's packages"; exit 77; }
[ "$(id -u)" -eq 0 ] || { echo "Slurm's daemons are started as root only"; exit 77; }
[ -x "$build/bin/ofload-batch" ] || { echo "the programs are not built"; exit 77; }
(. "$root/tools/setup.sh" && install_packages "${slurm_packages[@]}") || { echo "Slurm could not be installed"; exit 77; }

dir=$(mktemp -d /tmp/ofl-slurm-XXXXXX)
export SLURM_CONF=$dir/slurm.conf
OFLOAD_BATCH=$build/bin/ofload-batch
export OFLOAD_BATCH PATH=$build/bin:$PATH
unset JOB_COMPLETION_INDEX OFLOAD_SHARD_COUNT

fail() {
    echo "$*"
    squeue -a 2>/dev/null
    tail -n 20 "$dir"/*.log "$dir"/log/*.log 2>/dev/null
    exit 1
}
# until_true SECONDS WHAT COMMAND...
until_true() {
    local tries=$(($1 * 10)) what=$2
    shift 2
    while ! "$@"; do
        ((tries-- > 0)) || fail "waited too long: $what"
        sleep 0.1
    done
}

# ---- Slurm ----
# kill_by FILE: the daemon whose process id is there, and waits for it.
kill_by() {
    local pid tries=100
    pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && kill "$pid" 2>/dev/null || return 0
    while kill -0 "$pid" 2>/dev/null && ((tries-- > 0)); do sleep 0.1; done
    kill -9 "$pid" 2>/dev/null
}
no_jobs() { [ -z "$(squeue -h 2>/dev/null)" ]; }
stop_slurm() {
    local tries=100
    scancel --user=root 2>/dev/null
    while ! no_jobs && ((tries-- > 0)); do sleep 0.1; done
    kill_by "$dir/run/slurmd.pid"
    kill_by "$dir/run/slurmctld.pid"
    kill_by "$dir/run/munged.pid"
    rm -rf "$dir"
}
trap stop_slurm EXIT

write_configuration() {
    local host port=$((20000 + $$ % 20000))
    host=$(hostname -s)
    cat >"$SLURM_CONF" <<EOF
ClusterName=t
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/run/munge.sock
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
SlurmctldPort=$port
SlurmdPort=$((port + 1))
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
MpiDefault=none
ReturnToService=2
KillWait=5
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 RealMemory=200000 Gres=gpu:2 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
    printf 'Name=gpu File=/dev/%s\n' null zero >"$dir/gres.conf" # in name only
}
idle() { [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]; }
start_slurm() {
    mkdir -p "$dir"/{run,state,spool,log} && chmod 755 "$dir" "$dir/run" || fail "no folder"
    (umask 077 && head -c 1024 /dev/urandom >"$dir/munge.key")
    write_configuration
    munged --force --key-file="$dir/munge.key" --socket="$dir/run/munge.sock" --pid-file="$dir/run/munged.pid" \
        --log-file="$dir/log/munged.log" --seed-file="$dir/run/munge.seed" || fail "munged does not start"
    slurmctld -c -f "$SLURM_CONF" || fail "slurmctld does not start"
    slurmd -f "$SLURM_CONF" || fail "slurmd does not start"
    until_true 20 "the node is not idle" idle
}

# ---- the job ----
cd "$dir" || exit 1
export SOURCE_DATE_EPOCH=1700000000
"$build/bin/ofload-bench" mkmodel --layers 12 --hidden 128 --heads 4 --kv-heads 2 --ffn 384 --type bf16 --output tiny.gguf >/dev/null ||
    fail "no model"
for i in $(seq 1 43); do
    printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":' "$i"
    printf '{"model":"any","prompt":"Question %d","max_tokens":%d,"ignore_eos":true}}\n' "$i" $((20 + i % 7))
done >in.jsonl
ofload-batch --model tiny.gguf --device sim:vram=64MiB,h2d=2GB/s --input in.jsonl --output alone.jsonl --ordered --quiet ||
    fail "the run alone failed"
start_slurm

# Steps of 40 ms and more, two sequences at once: seconds for each shard, so that it is met in the middle.
job=$(sbatch --parsable --cpus-per-task=1 --mem=100 "$root/examples/batch/slurm.sbatch" --model tiny.gguf --vram 2MiB --sequences 2 \
    --device sim:vram=64MiB,h2d=100MB/s --threads 1 --input in.jsonl --output out.jsonl) || fail "sbatch refused the array"
merge=$(sbatch --parsable --dependency="afterany:$job" --output=merge.log \
    --wrap 'ofload-batch merge --input in.jsonl --output all.jsonl out.shard-*-of-00004.jsonl; echo "status $?"') ||
    fail "sbatch refused the merge"

under_way() { [ -s "out.shard-0000$1-of-00004.jsonl" ]; }
waits_again() { [ "$(squeue -h -j "${job}_$1" -o %T)" = PENDING ]; }
# A requeued task waits two minutes by itself.
start_again() {
    until_true 30 "task $1 is not queued again" waits_again "$1"
    scontrol update JobId="${job}_$1" StartTime=now || fail "task $1 cannot be started now"
}
until_true 60 "task 0 writes nothing" under_way 0
until_true 60 "task 1 writes nothing" under_way 1
timeout 2 scancel --batch --signal=USR1 "${job}_1" # sends it, is told that the task is busy, and would send it again
scontrol requeue "${job}_0" || fail "task 0 cannot be requeued"
start_again 0
start_again 1
until_true 120 "the jobs do not end" no_jobs

grep -q '^status 0$' merge.log || fail "the merge failed: $(cat merge.log)"
cmp alone.jsonl all.jsonl || fail "the merged shards differ from one run"
for task in 0 1; do grep -q 'going on with the rest' "ofload-${job}_$task.log" || fail "task $task did not go on where it stopped"; done
for task in 2 3; do ! grep -q 'going on with the rest' "ofload-${job}_$task.log" || fail "task $task was run twice"; done
echo "four shards, task 0 requeued, task 1 stopped by its time limit's signal, merged by job $merge: the bytes of one run"
