#!/bin/sh
# Link every name in the NAME line of a page of sections 1 and 3 to the page, so that `man NAME` finds it. Run by meson
# when it installs.
#
# usage: aliases.sh SOURCES MANDIR        (MANDIR below the prefix)
set -eu
for source in "$1"/*.[13].md; do
	page=$(basename "$source" .md)
	section=${page##*.}
	to=$MESON_INSTALL_DESTDIR_PREFIX/$2/man$section
	[ -d "$to" ] || continue
	awk '/^# NAME/ { on = 1; next } /^# / { on = 0 } on { printf "%s ", $0 }' "$source" |
		sed 's/ - .*//; s/,/ /g' | tr -s ' ' '\n' | while read -r name || [ -n "$name" ]; do
		alias=$to/$name.$section
		[ -n "$name" ] && [ "$name.$section" != "$page" ] || continue
		# never over a page: only a link may be replaced
		if [ -L "$alias" ] || [ ! -e "$alias" ]; then
			ln -sf "$page" "$alias"
		fi
	done
done
