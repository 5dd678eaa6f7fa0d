#!/usr/bin/env bash
# Build Horovod's wheel against the PyTorch of a Python: horovod.sh PYTHON FOLDER.
#
# Its source is of 2023, and published as nothing else. PyTorch's headers have since come to need
# C++17, and setuptools has dropped what its setup calls: the environment has an older one.
# Where MPI's headers are, Horovod gets MPI beside Gloo: Adasum needs it.
set -eu
python=$1 wheels=$2
release=$(sed 's/^horovod==//' "$(dirname "$0")/horovod.late")
for tool in cmake g++; do
    command -v "$tool" >/dev/null || { echo "the build needs $tool: apt-get install cmake g++" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation "horovod==$release"
tar xf "horovod-$release.tar.gz"
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' \
    "horovod-$release/CMakeLists.txt" "horovod-$release/horovod/torch/CMakeLists.txt"
mpi=HOROVOD_WITHOUT_MPI=1
if echo '#include <mpi.h>' | mpicxx -x c++ -E - >/dev/null 2>&1; then mpi=HOROVOD_WITH_MPI=1; fi
mkdir -p "$wheels"
env "$mpi" HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_GLOO=1 MAKEFLAGS=${MAKEFLAGS:--j2} \
    "$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$wheels" "./horovod-$release"
