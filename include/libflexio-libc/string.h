/* SPDX-License-Identifier: MIT */
/* Memory and strings on the DPA: picolibc's. */
#ifndef __FLEXIO_LIBC_STRING_H
#if !__has_include_next(<string.h>)
#include <string.h>
#else
#define __FLEXIO_LIBC_STRING_H
#include_next <string.h>
#endif
#endif
