// SPDX-License-Identifier: MIT
/* `verbatim dpa run` as a program of its own: `verbatim` finds it in libexec/verbatim and becomes it. */
#include <errno.h>

#include "tools/dpa_run.h"

int main(int argc, char **argv)
{
	/* What the user typed, in help and errors. */
	program_invocation_name = "verbatim dpa run";
	return dpa_run_main(argc, argv);
}
