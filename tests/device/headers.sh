#!/bin/sh
# Every device header alone, in C and C++, in both argument forms, without a warning; and what the linker refuses.
#
# usage: headers.sh STAGE WORKDIR MAN       (STAGE: an installed tree; MAN: sources of the man pages; prints TAP)
set -u
here=$(dirname "$0")
stage=$1 man=$3
dir=$2/headers.$$
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT
libc=/usr/lib/picolibc/riscv64-unknown-elf
libgcc=$(riscv64-unknown-elf-gcc -march=rv64imac -mabi=lp64 -print-libgcc-file-name)
n=0 failed=0

# Our headers as ordinary ones: warnings in system headers are not shown.
compile() {
	clang --target=riscv64-unknown-elf -march=rv64imac_zba_zbb_zbs -mabi=lp64 -mcmodel=medany -ffreestanding \
		-ftls-model=local-exec -O1 -Wall -Wextra -Werror -DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API \
		-I"$stage/include/libflexio-libc" -isystem $libc/include -I"$stage/include" "$@" 2>"$dir/log"
}

link() { # OUT OBJECT...
	out=$1
	shift
	clang --target=riscv64-unknown-elf -fuse-ld=lld -nostdlib -static -Wl,--wrap=vfprintf -T "$stage/lib/flexio/dpa_linker.ld" "$@" \
		-Wl,--whole-archive "$stage/lib/flexio/libflexio_dev.a" -Wl,--no-whole-archive \
		-Wl,--start-group "$stage/lib/flexio/libflexio-libc.a" $libc/lib/rv64imac/lp64/libc.a "$libgcc" \
		-Wl,--end-group -o "$out" 2>"$dir/log"
}

# Count a result: check NAME STATUS; a failure shows what the tool said.
check() {
	n=$((n + 1))
	if [ "$2" = 0 ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		sed 's/^/# /' "$dir/log"
		failed=1
	fi
}

said() { # NAME TEXT: the tool failed and said TEXT
	grep -q -- "$2" "$dir/log"
	check "$1" $?
}

for path in "$stage"/include/dpaintrin.h "$stage"/include/libflexio-dev/*.h "$stage"/include/libflexio-os/*.h \
	"$stage"/include/libflexio-libc/*.h; do
	name=${path#"$stage"/include/}
	printf '#include <%s>\n' "$name" >"$dir/one.c"
	printf '#include <%s>\n#include <%s>\n' "$name" "$name" >"$dir/twice.cc"
	compile -std=gnu11 -c "$dir/one.c" -o "$dir/one.o"
	check "$name in C" $?
	compile -std=c99 -c "$dir/one.c" -o "$dir/one.o"
	check "$name in C99" $?
	compile -std=gnu11 -DFLEXIO_DEV_VER_USED=0x18070000 -c "$dir/one.c" -o "$dir/one.o"
	check "$name in C, forms of 24.7" $?
	compile -std=gnu++17 -c "$dir/twice.cc" -o "$dir/one.o"
	check "$name in C++" $?
done

# The standard headers by their own names are ours.
printf '#include <stdio.h>\nFILE *keep(FILE *f);\nFILE *keep(FILE *f) { stdout = f; return stdout; }\n' >"$dir/own.c"
compile -c "$dir/own.c" -o "$dir/own.o"
check "stdout can be assigned" $?

compile -Wno-unused-function -c "$here/progs/names.c" -o "$dir/names.o"
check "every documented name, type and value" $?

# Experimental functions: a warning, that never becomes an error, and silence on request.
printf '#include <libflexio-dev/flexio_dev.h>\nvoid f(void);\nvoid f(void) { flexio_dev_thread_finish(); }\n' >"$dir/exp.c"
for language in c c++; do
	compile -x $language -UFLEXIO_DEV_ALLOW_EXPERIMENTAL_API -c "$dir/exp.c" -o "$dir/exp.o" &&
		grep -q 'warning.*defined as experimental' "$dir/log"
	check "an experimental function is a warning in $language, with -Werror too" $?
	compile -x $language -c "$dir/exp.c" -o "$dir/exp.o" && [ ! -s "$dir/log" ]
	check "it is none where experimental functions are allowed ($language)" $?
done

# Versions.
cat >"$dir/versions.c" <<'C'
#include <libflexio-dev/flexio_dev_ver.h>
#define FLEXIO_DEV_VER_USED FLEXIO_DEV_VER_LATEST
#include <libflexio-dev/flexio_dev.h>
_Static_assert(FLEXIO_DEV_CURRENT_VERSION == FLEXIO_DEV_VER(26, 4, 0), "26.4");
_Static_assert(FLEXIO_DEV_VER_USED == FLEXIO_DEV_VER(26, 4, 0), "latest is current");
_Static_assert(FLEXIO_DEV_LAST_SUPPORTED_VERSION == 0, "all");
C
compile -c "$dir/versions.c" -o "$dir/versions.o"
check "versions" $?
printf '#include <libflexio-dev/flexio_dev.h>\n' >"$dir/new.c"
compile "-DFLEXIO_DEV_VER_USED=FLEXIO_DEV_VER(30,1,0)" -c "$dir/new.c" -o "$dir/new.o"
said "a version that we do not know is refused" "newer than this SDK"
printf '#include <libflexio-dev/flexio_dev.h>\nint f(void);\nint f(void) { return flexio_dev_print("%%s", 5); }\n' >"$dir/format.c"
compile -c "$dir/format.c" -o "$dir/format.o"
said "formats of messages are checked" "Wformat"

# Linking.
cat >"$dir/fini.c" <<'C'
__attribute__((destructor)) static void late(void) { }
C
compile -c "$dir/fini.c" -o "$dir/fini.o" && link "$dir/fini.elf" "$dir/fini.o"
said "destructors are refused" "destructors do not run on the DPA"
printf 'int missing(void);\nint f(void);\nint f(void) { return missing(); }\n' >"$dir/undef.c"
compile -c "$dir/undef.c" -o "$dir/undef.o" && link "$dir/undef.elf" "$dir/undef.o"
said "undefined functions are refused" "undefined symbol: missing"
printf 'static char big[0x40000000];\nchar *f(int i);\nchar *f(int i) { return big + i; }\n' >"$dir/big.c"
compile -c "$dir/big.c" -o "$dir/big.o" && link "$dir/big.elf" "$dir/big.o"
said "a program larger than its memory is refused" "larger than the memory"
cat >"$dir/stdout.c" <<'C'
#include <stdio.h>
static int put(char c, FILE *f) { (void)f; return c; }
static int get(FILE *f) { (void)f; return _FDEV_EOF; }
static FILE own = FDEV_SETUP_STREAM(put, get, _FDEV_SETUP_RW);
FILE *stdout = &own;
FILE *const stderr = &own;
FILE *const stdin = &own;
int f(void);
int f(void) { return printf("%d", getchar()); }
C
compile -c "$dir/stdout.c" -o "$dir/stdout.o" && link "$dir/stdout.elf" "$dir/stdout.o"
check "a program may bring its own stdin, stdout and stderr" $?
compile -c "$dir/own.c" -o "$dir/own.o" &&
	link "$dir/min.elf" "$dir/stdout.o" -Wl,-u,vfprintf -L"$stage/lib/flexio" -lprintf_min &&
	nm "$dir/min.elf" >"$dir/log" && grep -q __i_vfprintf "$dir/log" && ! grep -q dtoa "$dir/log" &&
	grep -q __wrap_vfprintf "$dir/log"
check "-u vfprintf -lprintf_min takes the small printf" $?
readelf -lW "$dir/stdout.elf" >"$dir/log"
[ "$(awk '$1 == "LOAD" { f = ""; for (i = 7; i < NF; i++) f = f $i; printf "%s ", f }' "$dir/log")" = "RE R RW " ]
check "text, constants and data have rights of their own" $?
for option in --no-gc-sections --gc-sections; do
	link "$dir/gc.elf" "$dir/stdout.o" -Wl,$option && readelf -sW "$dir/gc.elf" >"$dir/log" &&
		grep -q '__global_pointer\$' "$dir/log" && grep -q __flexio_dev_abi_version "$dir/log" &&
		grep -q __flexio_dev_msg_levels "$dir/log" && grep -q __flexio_dev_init "$dir/log"
	check "the symbols that the host looks for are there ($option)" $?
done

# Every function has its man page.
cat "$stage"/include/libflexio-dev/*.h "$stage"/include/dpaintrin.h | grep -v '^#' |
	grep -oE '\b(flexio_dev_|__dpa_|print_sim_|sim_trace)[a-z0-9_]*\(' | tr -d '(' | sort -u |
	grep -v -e '^__dpa_os_' >"$dir/names"
while read -r name; do
	grep -qw -- "$name" "$man"/*.3.md || echo "no man page: $name"
done <"$dir/names" >"$dir/log"
[ "$(wc -l <"$dir/names")" -gt 90 ] && [ ! -s "$dir/log" ]
check "every function has a man page" $?

echo "1..$n"
exit $failed
