// SPDX-License-Identifier: MIT
/* Owns what may stand in for the system's clock; see clock.h. */
#include "base/clock.h"

#include <stddef.h>

vb_clock_source *_Atomic vb_clock_replaced;
