/* SPDX-License-Identifier: MIT */
/* JSON that tools print: only what has to be escaped. */
#pragma once

#include <stdio.h>

/* A string with its quotes; bytes that are no UTF-8 become U+FFFD. */
void tools_json_string(FILE *f, const char *text);
