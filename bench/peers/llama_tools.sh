#!/bin/sh
# Makes llama.cpp's llama-bench and llama-batched-bench, and llama-greedy beside them, for --llama DIR of `./dev bench engine` and
# `./dev bench gguf`:
#   bench/peers/llama_tools.sh DIR
# From npm: node-llama-cpp carries the source as a git bundle, @node-llama-cpp/linux-x64 the libraries, with kernels for each kind
# of CPU, so that only the tools are compiled. Needs npm, git and g++. With the libraries of linux-x64-cuda the same tools use a GPU.
set -eu
version=3.22.1
peers=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
for package in node-llama-cpp node-llama-cpp-linux-x64; do
  name=$package
  [ "$package" = node-llama-cpp ] || name=@node-llama-cpp/linux-x64
  [ -f "$package-$version.tgz" ] || npm pack --silent "$name@$version"
  mkdir -p "$package"
  tar -xzf "$package-$version.tgz" -C "$package"
done
[ -d source ] || git -c advice.detachedHead=false clone --quiet node-llama-cpp/package/llama/gitRelease.bundle source
cp node-llama-cpp-linux-x64/package/bins/linux-x64/*.so .
for library in llama ggml; do # the others have no version in their name
  ln -sf "$(basename "lib$library".v*.so)" "lib$library.so"
done
compile() { # NAME SOURCES...
  name=$1
  shift
  g++ -std=c++17 -O2 -DNDEBUG -Isource -Isource/include -Isource/ggml/include -Isource/common -Isource/vendor "$@" -o "$name" \
    -L. -lllama-common -lllama -lggml -lggml-base -lpthread -Wl,-rpath,"\$ORIGIN"
}
compile llama-bench source/tools/llama-bench/*.cpp
compile llama-batched-bench source/tools/batched-bench/*.cpp
compile llama-greedy "$peers/llama_greedy.cpp"
