/* SPDX-License-Identifier: MIT */
/* VB_TSAN: this is a build with ThreadSanitizer (gcc and clang say it differently). */
#pragma once

#if defined(__SANITIZE_THREAD__)
#define VB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VB_TSAN 1
#endif
#endif
