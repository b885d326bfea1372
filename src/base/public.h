/* SPDX-License-Identifier: MIT */
/* What libverbatim.so shows to the libraries above it. */
#pragma once

#define VB_PUBLIC __attribute__((visibility("default")))
