#!/bin/sh
# Link every name in the NAME line of a page of section 3 to the page, so that `man FUNCTION` finds it. Run by meson when
# it installs.
#
# usage: aliases.sh SOURCES MANDIR        (MANDIR below the prefix)
set -eu
to=$MESON_INSTALL_DESTDIR_PREFIX/$2/man3
[ -d "$to" ] || exit 0
for source in "$1"/*.3.md; do
	page=$(basename "$source" .md)
	awk '/^# NAME/ { on = 1; next } /^# / { on = 0 } on { printf "%s ", $0 }' "$source" |
		sed 's/ - .*//; s/,/ /g' | tr -s ' ' '\n' | while read -r name || [ -n "$name" ]; do
		alias=$to/$name.3
		[ -n "$name" ] && [ "$name.3" != "$page" ] || continue
		# never over a page: only a link may be replaced
		if [ -L "$alias" ] || [ ! -e "$alias" ]; then
			ln -sf "$page" "$alias"
		fi
	done
done
