// SPDX-License-Identifier: MIT
/* The two points of order that ThreadSanitizer is told of; see rcu.h. */
#include "base/rcu.h"

#ifdef VB_TSAN
char vb_rcu_ended, vb_rcu_waited;
#endif
