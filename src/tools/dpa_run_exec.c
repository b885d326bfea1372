// SPDX-License-Identifier: MIT
/* `verbatim dpa run` as a program of its own: `verbatim` finds it in libexec/verbatim and becomes
 * it. */
#include "tools/dpa_run.h"

int main(int argc, char **argv)
{
	return dpa_run_main(argc, argv);
}
