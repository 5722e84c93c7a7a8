#!/usr/bin/env bash
# The Debian packages, built without CUDA, install on a fresh minimal Debian, run there, and go again. Minutes; as root, with debootstrap:
#   OFLOAD_TEST_PACKAGES=1 ctest --test-dir build -R test_packages      OFLOAD_DEB_FOLDER=… takes packages that are built already
set -u
root=$1
skip() { echo "skipped: $*"; exit 77; }
[ -n "${OFLOAD_TEST_PACKAGES:-}" ] || skip "set OFLOAD_TEST_PACKAGES=1 (a package source on the network is used)"
[ "$(id -u)" -eq 0 ] || skip "not root"
command -v debootstrap >/dev/null || skip "no debootstrap"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
sources=(/etc/apt/sources.list.d/debian.sources /etc/apt/sources.list)
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\).*/\2/p' "${sources[@]}" 2>/dev/null | head -n 1)
[ -n "$suite" ] && [ -n "$mirror" ] || skip "no Debian with a package source"

folder=$(mktemp -d /var/tmp/ofload-packages.XXXXXX)
clean=$folder/root
trap 'for m in dev sys proc; do umount -R -l "$clean/$m" 2>/dev/null; done; rm -rf --one-file-system "$folder"' EXIT
die() { echo "FAILED: $*"; [ ! -f "$folder/log" ] || tail -n 30 "$folder/log"; exit 1; }
quietly() { "$@" >"$folder/log" 2>&1 || die "$*"; }

debs=${OFLOAD_DEB_FOLDER:-$folder/debs}
if [ -z "${OFLOAD_DEB_FOLDER:-}" ]; then
    quietly git clone -q "$root" "$folder/source" # the build leaves nothing in the tree
    quietly bash "$folder/source/tools/packages.sh" -o "$debs" -DOFLOAD_CUDA=OFF
fi
[ "$(find "$debs" -name '*.deb' | wc -l)" -eq 3 ] || die "there should be three packages in $debs"
names=()
for deb in "$debs"/*.deb; do
    names+=("$(dpkg-deb -f "$deb" Package)")
    dpkg-deb -f "$deb" Package Version Depends
    dpkg-deb -f "$deb" Depends | grep -iE 'cuda|nvidia' && die "$deb depends on CUDA"
done

quietly debootstrap --variant=minbase "$suite" "$clean" "$mirror"
cp -a /etc/apt/. "$clean/etc/apt/"
cp -L /etc/resolv.conf /etc/hosts "$clean/etc/" 2>/dev/null
for at in usr/share/keyrings etc/ssl/certs; do mkdir -p "$clean/$at" && cp -a "/$at/." "$clean/$at/" 2>/dev/null; done
mkdir "$clean/debs" && cp "$debs"/*.deb "$clean/debs/"
for m in proc sys dev; do mount --rbind "/$m" "$clean/$m" && mount --make-rslave "$clean/$m"; done
inside() { chroot "$clean" /usr/bin/env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
quietly inside apt-get update -qq
quietly inside sh -c 'apt-get install -y -qq --no-install-recommends /debs/*.deb'

for program in ofload-plan ofload-batch ofload-bench; do inside "$program" --version || die "$program does not run"; done
quietly inside ofload-bench mkmodel --layers 2 --output /debs/m.gguf
inside ofload-plan --vram 1GB --link 12GB/s --context 512 /debs/m.gguf >"$folder/page" 2>&1 || die "ofload-plan: $(cat "$folder/page")"
grep -q 'tokens/s' "$folder/page" || die "no plan was printed"
head -n 6 "$folder/page"
body='{"model":"m","prompt":"Hello","max_tokens":4}'
echo '{"custom_id":"a","method":"POST","url":"/v1/completions","body":'"$body}" >"$clean/debs/in.jsonl"
quietly inside ofload-batch --device sim:vram=64MiB,h2d=1GB/s --model /debs/m.gguf --input /debs/in.jsonl \
    --output /debs/out.jsonl --quiet
grep -q '"custom_id":"a"' "$clean/debs/out.jsonl" || die "no answer"
inside sh -c 'ldconfig -p | grep -q libofload.so' || die "the loader does not know the library"
quietly inside apt-get purge -y -qq "${names[@]}"
[ -z "$(find "$clean"/usr -iname '*ofload*' | head)" ] || die "something is left after the packages are gone"
echo "installed, ran and went"
