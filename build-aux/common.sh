# Shared by the scripts of this folder; sourced, never run.
# shellcheck shell=bash

# usage: print the head comment of the script, which is its help; self is its path.
usage() {
	sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$self"
}

# say TEXT...: one line about what is going on, apart from the output of commands.
say() {
	echo "verbatim: $*" >&2
}

# quietly TITLE COMMAND...: run a command and keep its output to itself. On a terminal its last line is shown in place;
# where it fails, everything it said but ninja's progress is printed, and otherwise only compiler warnings.
quietly() {
	local title=$1 log status=0 line
	shift
	log=$(mktemp)
	if [ -t 2 ]; then
		{ "$@" 2>&1 || echo $? >"$log.status"; } | while IFS= read -r line; do
			printf '%s\n' "$line" >>"$log"
			printf '\r\033[K%s: %.*s' "$title" $((${COLUMNS:-80} - ${#title} - 3)) "$line" >&2
		done
		printf '\r\033[K' >&2
		[ ! -e "$log.status" ] || status=$(cat "$log.status")
	else
		"$@" >"$log" 2>&1 || status=$?
	fi
	if [ "$status" != 0 ]; then
		sed '/^\[[0-9]*\/[0-9]*\] /d' "$log" >&2
	else
		grep -E -A3 'warning:' "$log" >&2 || true
	fi
	rm -f "$log" "$log.status"
	return "$status"
}

# absolute PATH: PATH as seen from /, whether it exists or not.
absolute() {
	case $1 in
	/*) echo "$1" ;;
	*) echo "$PWD/$1" ;;
	esac
}

# werror COMPILER: should warnings be errors? "true" with the compilers that CI has, which are Debian 12's, and wherever
# CI runs; "false" with others, which may warn of what these do not know. WERROR=true or WERROR=false decides it.
werror() {
	case ${WERROR:-}/${CI:-} in
	true/* | /true) echo true; return ;;
	false/*) echo false; return ;;
	esac
	case $($1 --version 2>/dev/null) in
	*"(Debian 12."* | "Debian clang version 14."*) echo true ;;
	*) echo false ;;
	esac
}

# configure DIR WERROR OPTION...: set a build tree up, once; later only what warnings are may change.
configure() {
	local dir=$1 werror=$2
	shift 2
	if [ ! -e "$dir/build.ninja" ]; then
		quietly "configuring $dir" meson setup "$dir" -Dwerror="$werror" "$@"
	elif ! grep -q "\"name\": \"werror\", \"value\": $werror" "$dir/meson-info/intro-buildoptions.json"; then
		quietly "configuring $dir" meson configure "$dir" -Dwerror="$werror"
	fi
}
