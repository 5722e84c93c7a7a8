#!/usr/bin/env bash
# Builds the Debian packages: tools/packages.sh [-o FOLDER] [cmake options]. They come into FOLDER (default: build-packages/deb).
# With a CUDA toolkit its runtime is linked statically: one package for machines with and without a driver, which depends on no package of
# CUDA. -DOFLOAD_CUDA=OFF leaves CUDA out. Who publishes them gives a maintainer: -DOFLOAD_PACKAGE_CONTACT="Name <address>".
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
folder=$root/build-packages
out=$folder/deb
if [ "${1:-}" = -o ]; then out=$(realpath "$2"); shift 2; fi
options=("$@")
case " $* " in
*OFLOAD_CUDA=OFF* | *OFLOAD_CUDA_STATIC=*) ;;
*)
    toolkit=$(find /usr/local/cuda*/ /usr/lib -name libcudart_static.a 2>/dev/null | head -n 1)
    [ -z "$toolkit" ] || options+=(-DOFLOAD_CUDA_STATIC=ON)
    ;;
esac
install_packages "${build_packages[@]}" dpkg-dev
cd "$root"
build "$folder" -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_BUILD_TYPE=Release -DOFLOAD_BUILD_TESTS=OFF "${options[@]}"
say "Packages"
(cd "$folder" && cpack -B "$folder/cpack" >cpack.log 2>&1) || { tail -n 40 "$folder/cpack.log" >&2; exit 1; }
mkdir -p "$out"
cp "$folder"/cpack/*.deb "$out/"
ls "$out"/*.deb
