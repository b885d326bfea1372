/* SPDX-License-Identifier: MIT */
#pragma once

/* `verbatim dpa run FILE.elf [ARGS]`; returns the exit status. */
int dpa_run_main(int argc, char **argv);
