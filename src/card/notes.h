/* SPDX-License-Identifier: MIT */
/* What the codes in notes of the timeline (control/record/timeline.h) are called, for who shows them. */
#pragma once

#include "control/record/timeline.h"

/* "?" where the kind has no codes, or not this one. */
const char *vb_note_code_text(const struct vb_note *note);
