#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Build device code for a FlexIO program: the script that public build files find at
# /opt/mellanox/doca/tools (verbatim sdk).
#
# usage: build_flexio_device.sh NAME SOURCE FOLDER
#
# NAME    of the application: the host program declares  extern struct flexio_app *NAME;
# SOURCE  of the device code; several with blanks between them
# FOLDER  for NAME.a, which the host program is linked with; made where it is missing
set -eu
if [ $# != 3 ]; then
	echo "usage: build_flexio_device.sh NAME SOURCE FOLDER" >&2
	exit 2
fi
name=$1 folder=$3
read -ra sources <<<"$2"
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$folder"
exec "$here/dpacc" "${sources[@]}" -o "$folder/$name.a" -hostcc=gcc -hostcc-options=-Wno-deprecated-declarations \
	--devicecc-options="-O2 -g -Wall -Wextra -DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API" --app-name="$name"
