/* SPDX-License-Identifier: MIT */
/* A page of text for whoever asks by HTTP. */
#pragma once

#include <stdio.h>

/* Writes the page; 0 or -errno. */
typedef int look_page(FILE *out, void *arg);

/*
 * Answers at [ADDRESS:]PORT until SIGINT or SIGTERM. The exit code, after a message that begins with who where it is not 0.
 */
int look_serve(const char *who, const char *where, look_page *page, void *arg);
