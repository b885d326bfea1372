# SPDX-License-Identifier: MIT
# Completion of build_flexio_device.sh for bash: a name, files, a folder.
_build_flexio_device()
{
	local word=${COMP_WORDS[COMP_CWORD]}

	case $COMP_CWORD in
	2) mapfile -t COMPREPLY < <(compgen -f -X '!*.c' -- "$word"; compgen -d -- "$word") ;;
	3) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
	*) COMPREPLY=() ;;
	esac
}
complete -o filenames -F _build_flexio_device build_flexio_device.sh
