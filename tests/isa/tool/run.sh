#!/bin/sh
# The command that runs a bare program: what it prints, how it ends, and that both tiers agree on it. TAP.
#
# usage: run.sh DPA_RUN ISA_GEN WORKDIR
set -u
run=$1 gen=$2
dir=$3/tool.$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
number=0 failed=0

is() { # is WHAT GOT WANT
	number=$((number + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $number - $1"
	else
		failed=1
		echo "not ok $number - $1"
		echo "# got $(echo "$2" | head -3 | tr '\n' ' '), expected $(echo "$3" | head -3 | tr '\n' ' ')"
	fi
}

# go OPTION...: run the program; $status, $dir/out, $dir/err
go() {
	status=0
	timeout 60 "$run" "$@" >"$dir/out" 2>"$dir/err" || status=$?
}

program() { # program FILE WORD...: a hand-made ELF with one segment of these words at 64 KiB
	out=$1
	shift
	python3 - "$out" "$@" <<'PY'
import struct, sys
text = b''.join(struct.pack('<I', int(w, 16)) for w in sys.argv[2:])
head = b'\x7fELF\x02\x01\x01' + bytes(9) + struct.pack('<HHIQQQIHHHHHH', 2, 243, 1, 0x10000, 64, 0, 1, 64, 56, 1, 64, 0, 0)
head += struct.pack('<IIQQQQQQ', 1, 5, 4096, 0x10000, 0x10000, len(text), len(text), 4096)
open(sys.argv[1], 'wb').write(head + bytes(4096 - len(head)) + text)
PY
}

program "$dir/exit7" 00700513 05d00893 00000073            # li a0, 7; li a7, 93; ecall
program "$dir/exit_group" 02a00513 05e00893 00000073       # the same with 94
program "$dir/null" 00500293 02003303 00000073             # li t0, 5; ld t1, 32(x0)
program "$dir/illegal" 00000013 ffffffff
program "$dir/odd_call" 3e700893 00000073 40a00533 05d00893 00000073 # a7 = 999; ecall; neg a0; exit(-a0)

for tier in interp jit; do
	go --tier $tier --count "$dir/exit7"
	is "$tier: exit status is the program's" "$status" 7
	is "$tier: count includes the exit call" "$(cat "$dir/err")" "instructions: 3"
	go --tier $tier "$dir/exit_group"
	is "$tier: exit by 94" "$status" 42
	go --tier $tier --count "$dir/null"
	is "$tier: a trap is status 125" "$status" 125
	is "$tier: the trap is told in one line" "$(grep -c 'pc=0x10004 addr=0x20' "$dir/err")" 1
	is "$tier: what trapped does not count" "$(grep "^instructions" "$dir/err")" "instructions: 1"
	go --tier $tier "$dir/illegal"
	is "$tier: an illegal instruction shows its bits" "$status $(grep -ci 'pc=0x10004.*ffffffff' "$dir/err")" "125 1"
	go --tier $tier "$dir/odd_call"
	is "$tier: an unknown call is -ENOSYS" "$status" 38
	go --tier $tier --max-insns 2 --count "$dir/exit7"
	is "$tier: stopped by the limit" "$status $(cat "$dir/err")" "124 instructions: 2"
done

# The same state after N instructions of a real program, whatever the tier.
"$gen" --write "$dir/random" --seed 8 --per-elf 20
for n in 1 10 100 1000 1001 1002 5000 9999; do
	go --tier interp --max-insns $n --regs --count "$dir/random"
	cp "$dir/err" "$dir/regs" && cp "$dir/out" "$dir/text"
	go --tier jit --max-insns $n --regs --count "$dir/random"
	is "registers after $n instructions" "$(cat "$dir/err")" "$(cat "$dir/regs")"
	is "output after $n instructions" "$(cksum <"$dir/out")" "$(cksum <"$dir/text")"
	is "all registers after $n are there" "$(grep -c '^x[0-9]* 0x\|^pc 0x' "$dir/regs")" 33
done

refused() { # refused WHAT OPTION...: status 126, one line of why, nothing on stdout
	what=$1
	shift
	go "$@"
	is "$what: refused" "$status $([ -s "$dir/err" ] && echo said) $(wc -c <"$dir/out" | tr -d ' ')" "126 said 0"
}
head -c 100 "$dir/exit7" >"$dir/short"
refused "no such file" "$dir/nothing"
refused "a folder" "$dir"
refused "a text file" "$0"
refused "a host program" "$run"
refused "a cut file" "$dir/short"
refused "no file" --count
refused "a bad tier" --tier fast "$dir/exit7"
refused "a bad number" --max-insns many "$dir/exit7"
refused "no memory" --limit 0 "$dir/exit7"
refused "more memory than there can be" --limit 2048 "$dir/exit7"

VERBATIM_DPA_TIER=interp go --tier jit --stats "$dir/exit7"
is "the environment forces a tier" "$status" 7
VERBATIM_DPA_TIER=quick go "$dir/exit7"
is "a bad tier in the environment is refused" "$status" 126
VERBATIM_DPA_SEED=5x go "$dir/exit7"
is "a bad seed is refused by name" "$status $(grep -c 'VERBATIM_DPA_SEED=5x is not a number' "$dir/err")" "126 1"
echo "1..$number"
exit $failed
