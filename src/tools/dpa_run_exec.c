// SPDX-License-Identifier: MIT
/* `verbatim dpa run` as a program of its own: `verbatim` finds it in libexec/verbatim and becomes it. */
#include "tools/dpa_run.h"

int main(int argc, char **argv)
{
	static char name[] = "verbatim dpa run";

	if (argc > 0)
		argv[0] = name; /* what the user typed, in help and errors */
	return dpa_run_main(argc, argv);
}
