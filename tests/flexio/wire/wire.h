/* SPDX-License-Identifier: MIT */
/*
 * The other end of the cable from a sample: a station on mlx5_1, and the sample as a child process on mlx5_0.
 *
 *	this process: station on mlx5_1 == cable == mlx5_0: sample, started with a command
 *	                       standard output <---- pipe
 */
#pragma once

#include <stdio.h>

#include "../../programs/station.h"

enum { WIRE_MAX_ARGS = 16 };

struct sample {
	pid_t pid;
	FILE *out; /* what it prints */
	char line[512];
};

/* The command with more arguments (NULL at the end); returns when the sample has printed its first line. */
void sample_start(struct sample *s, char **command, const char *const *more);
/* Its next line; fails the test where there is none. */
const char *sample_line(struct sample *s);
/* Its next line that begins so; others are skipped. */
const char *sample_find(struct sample *s, const char *begin);
/* It ends by itself, or after a signal (not 0), with exit code 0. */
void sample_end(struct sample *s, int signal);

/* One for each sample: the command that starts it. */
void wire_flow_counter(char **command);
void wire_l2_reflector(char **command);
void wire_packet_processor(char **command);
