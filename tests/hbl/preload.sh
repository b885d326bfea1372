#!/bin/sh
# The files that programs look at themselves, under `verbatim run` and in its children. usage: preload.sh VERBATIM CONFIG
set -eu
verbatim=$1
config=$2
failed=0
count=0
check() { # what, expected, got
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1: '$3' instead of '$2'"
		failed=1
	fi
}
under() {
	"$verbatim" run --config "$config" -- "$@" 2>&1 || :
}
state=/sys/class/infiniband/hbl_0/ports
check "cat reads the state" "5: LinkUp" "$(under cat $state/1/phys_state)"
check "a child of a shell, too" "5: LinkUp" "$(under sh -c "sh -c 'cat $state/4/phys_state'")"
check "the shell's own redirection" "5: LinkUp" "$(under sh -c "read line < $state/2/phys_state; echo \"\$line\"")"
check "stdio" "5: LinkUp" "$(under head -n 1 $state/1/phys_state)"
check "test -r" "yes" "$(under sh -c "test -r $state/1/phys_state && echo yes")"
check "not test -w" "no" "$(under sh -c "test -w $state/1/phys_state && echo yes || echo no")"
check "but the accelerator is" "yes" "$(under sh -c "test -w /dev/accel/accel0 && test -r /dev/accel/accel0 && echo yes")"
check "no such port" "cat: $state/99/phys_state: No such file or directory" "$(under cat $state/99/phys_state)"
check "no writing" "no" "$(under sh -c "(echo x > $state/1/phys_state) 2> /dev/null && echo yes || echo no")"
check "other files are as they are" "$(cat /proc/version)" "$(under cat /proc/version)"
check "the accelerator exists" "yes" "$(under sh -c "test -e /dev/accel/accel0 && echo yes")"
check "and no other" "no" "$(under sh -c "test -e /dev/accel/accel9 && echo yes || echo no")"
# Programs open the first name that they find.
check "listed in order" "accel0 accel1" "$(under ls -U /dev/accel | tr '\n' ' ' | sed 's/ $//')"
check "device nodes, too" "uverbs0 uverbs1 uverbs2" "$(under ls -U /dev/infiniband | tr '\n' ' ' | sed 's/ $//')"
check "and RDMA devices" "hbl_0 hbl_1 mlx5_0" "$(under ls -U /sys/class/infiniband | tr '\n' ' ' | sed 's/ $//')"
check "one owner" "Device or resource busy" "$(under sh -c "exec 3<>/dev/accel/accel0; cat /dev/accel/accel0 2>&1 | sed 's/.*: //'")"
echo "1..$count"
exit $failed
