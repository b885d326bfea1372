/* SPDX-License-Identifier: MIT */
/* Memory allocation, numbers, sorting on the DPA: picolibc's. */
#ifndef __FLEXIO_LIBC_STDLIB_H
#if !__has_include_next(<stdlib.h>)
#include <stdlib.h>
#else
#define __FLEXIO_LIBC_STDLIB_H
#include_next <stdlib.h>
#endif
#endif
