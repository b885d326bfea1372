#!/bin/sh
# Compile one program by clang and gcc at every level and compare what it prints on every engine.
#
# usage: compare.sh DPA_RUN WORKDIR SOURCE...
#
# Output and exit status must be equal on interpreter, translator, qemu-riscv64 and between all builds; the
# instruction counts of our tiers must be equal. A source that holds no assembly is also run natively.
set -eu
run=$1 work=$2
shift 2
for tool in clang ld.lld riscv64-unknown-elf-gcc; do
	command -v $tool >/dev/null || { echo "$tool is not installed"; exit 77; }
done
[ -d /usr/lib/picolibc/riscv64-unknown-elf ] || { echo "picolibc-riscv64-unknown-elf is not installed"; exit 77; }
qemu=$(command -v qemu-riscv64 || echo -)
here=$(dirname "$0")
name=$(basename "$1" .c)
dir=$work/$name.$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
bad=0 builds=0

fail() {
	echo "FAIL $name $*"
	bad=1
}

# execute LABEL COMMAND...: output to $dir/LABEL.out with the exit status as its last line
execute() {
	label=$1
	shift
	rc=0
	timeout 60 "$@" >"$dir/$label.out" 2>"$dir/$label.err" || rc=$?
	echo "status $rc" >>"$dir/$label.out"
}

same() { # same LABEL BUILD: against the first output seen
	if [ ! -e "$dir/expected" ]; then
		cp "$dir/$1.out" "$dir/expected"
	elif ! cmp -s "$dir/expected" "$dir/$1.out"; then
		fail "$2 on $1 differs:"
		diff "$dir/expected" "$dir/$1.out" | head -5
		head -3 "$dir/$1.err"
	fi
}

case "$*" in
*.S*) ;;
*)
	cc -O1 -w -o "$dir/native" "$@"
	execute native "$dir/native"
	same native native ;;
esac

one_build() { # one_build KIND OPTION...
	kind=$1
	shift
	build="$kind $*"
	if ! "$here/../rt/build" "$kind" "$dir/elf" -w "$@" 2>"$dir/cc.err"; then
		fail "$build does not compile:"
		head -5 "$dir/cc.err"
		return
	fi
	builds=$((builds + 1))
	if [ "$qemu" != - ] && [ "$kind" != clang-pie ]; then
		execute qemu "$qemu" -cpu rv64,zba=true,zbb=true,zbs=true,zbc=true "$dir/elf"
		same qemu "$build"
	fi
	for tier in interp jit; do
		execute $tier "$run" --tier $tier --count "$dir/elf"
		same $tier "$build"
	done
	grep '^instructions: ' "$dir/interp.err" >"$dir/n1" || fail "$build: the interpreter gave no count"
	grep '^instructions: ' "$dir/jit.err" >"$dir/n2" || fail "$build: the translator gave no count"
	cmp -s "$dir/n1" "$dir/n2" || fail "$build: counts differ: $(cat "$dir/n1" "$dir/n2" | tr '\n' ' ')"
}

for kind in clang gcc; do
	one_build $kind -O0 -march=rv64imac "$@"
	one_build $kind -O1 -march=rv64imac "$@"
	one_build $kind -O2 "$@"
	one_build $kind -O3 "$@"
	one_build $kind -Os -msave-restore "$@"
done
one_build clang-pie -O2 "$@"
echo "$name: $builds builds, $([ $bad = 0 ] && echo all equal || echo DIFFERENT)"
exit $bad
