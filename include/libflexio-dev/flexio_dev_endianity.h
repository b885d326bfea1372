/* SPDX-License-Identifier: MIT */
/*
 * Between the byte order of the DPA (little endian) and that of queues (big endian). Each is an expression that can
 * initialise a static variable if its argument is a constant.
 */
#ifndef _FLEXIO_DEV_ENDIANITY_H_
#define _FLEXIO_DEV_ENDIANITY_H_

#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error the DPA is little endian
#endif

#define cpu_to_be16(val) __builtin_bswap16(val)
#define cpu_to_be32(val) __builtin_bswap32(val)
#define cpu_to_be64(val) __builtin_bswap64(val)

#define be16_to_cpu(val) __builtin_bswap16(val)
#define be32_to_cpu(val) __builtin_bswap32(val)
#define be64_to_cpu(val) __builtin_bswap64(val)

#define cpu_to_le16(val) ((uint16_t)(val))
#define cpu_to_le32(val) ((uint32_t)(val))
#define cpu_to_le64(val) ((uint64_t)(val))

#define le16_to_cpu(val) ((uint16_t)(val))
#define le32_to_cpu(val) ((uint32_t)(val))
#define le64_to_cpu(val) ((uint64_t)(val))

#endif
