#!/usr/bin/env bash
# Data flows one way: each folder of lib/ may include only what is named here. Programs and benches see public headers alone. Only ofl_ names are exported.
set -u
root=$1 build=$2 failed=0

# check FOLDER PATTERN: every #include in it must match
check() {
    local bad
    ls "$root"/"$1"/*.[ch] >/dev/null || { echo "$1: no such folder, or no source in it"; failed=1; return; }
    bad=$(grep -nE '^ *# *include' "$root"/"$1"/*.[ch] 2>/dev/null | grep -vE "#include (<($2)|\"($3))" || true)
    if [ -n "$bad" ]; then echo "$1 may not include:"; echo "$bad"; failed=1; fi
}
libc='(assert|ctype|errno|fcntl|float|inttypes|limits|locale|math|stdalign|stdarg|stdbool|stddef|stdint|stdio|stdlib|string|unistd|sys/stat|sys/types|dirent|libgen|strings)\.h>'
threads='(pthread|time|sched|semaphore|stdatomic|sys/mman)\.h>'
check lib/base   "$libc|$threads|ofload/status\.h>|cjson/cJSON\.h>|hwloc\.h>" 'base/'
check lib/model  "$libc|stdatomic\.h>|sys/mman\.h>|cjson/cJSON\.h>|ofload/(model|status)\.h>" 'base/|model/'
check lib/device "$libc|$threads|signal\.h>|sys/prctl\.h>|ofload/(device|status)\.h>|cuda_runtime_api\.h>" 'base/|device/'
check lib/machine "$libc|$threads|cjson/cJSON\.h>|sys/sysinfo\.h>|ofload/(machine|device|status)\.h>" 'base/|machine/'
check lib/plan   "$libc|cjson/cJSON\.h>|ofload/(plan|machine|model|status)\.h>" 'base/|plan/'
check lib/compute "$libc|ofload/(compute|plan|device|status)\.h>" 'base/'
check lib/engine "$libc|$threads|ofload/(engine|plan|device|model|status)\.h>" 'base/|engine/|plan/(ring|copies)\.h'
check lib/front  "$libc|ofload/(front|plan|status)\.h>" 'base/|front/'

grep -rnE '\b(printf|fprintf|puts|perror|exit|abort|_exit) *\(' "$root"/lib --include=*.c --include=*.h | grep -vE 'f?printf, [0-9]|snprintf|__format__' &&
    { echo "lib/ may not print or exit"; failed=1; }

library=$build/lib/libofload.so
names=$(nm -D --defined-only "$library" | awk '$2 ~ /[TDBRVW]/ && $3 !~ /^ofl_/ {print $3}' | grep -v '^_\(init\|fini\)$')
if [ -n "$names" ]; then echo "exported, but not ofl_: $names"; failed=1; fi
[ "$failed" -eq 0 ] && echo "layers hold"
exit "$failed"
