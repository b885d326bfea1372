#!/bin/sh
# Compile guest.c as a static file and as a static PIE, then test with them.  compiled.sh PROGRAM TIER WORKDIR
set -eu
here=$(dirname "$0")
for tool in clang ld.lld riscv64-unknown-elf-gcc; do
	command -v $tool >/dev/null || { echo "$tool is not installed"; exit 77; }
done
[ -d /usr/lib/picolibc/riscv64-unknown-elf ] || { echo "picolibc-riscv64-unknown-elf is not installed"; exit 77; }
dir=$3/compiled.$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
"$here/../rt/build" clang "$dir/static" -O1 -Wl,--no-gc-sections "$here/guest.c"
"$here/../rt/build" clang-pie "$dir/pie" -O1 -Wl,--no-gc-sections "$here/guest.c"
"$1" "$2" "$dir/static" "$dir/pie"
