/* SPDX-License-Identifier: MIT */
/*
 * Every reason for which a verbs call, a direct-verbs call or a work request is refused: one line
 * each.
 *
 *	X(name, errno, hint, (parameters), format, arguments...)
 *
 * makes vb_refuse_name(parameters), which leaves one line in the log and returns -errno
 * (refusal.h). The hint is the setting that helps, or NULL. Words name what the program gave, then
 * what would have been right.
 */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define VB_REASONS(X)                                                                                                  \
	/* arguments */                                                                                                \
	X(null, EINVAL, NULL, (const char *what), "%s is NULL", what)                                                  \
	X(other_context, EINVAL, NULL, (const char *what),                                                             \
	  "%s is missing, or belongs to another device context", what)                                                 \
	X(bits, EINVAL, NULL, (const char *what, uint64_t bits), "unknown bits 0x%llx in %s",                          \
	  (unsigned long long)bits, what)                                                                              \
	X(value, EINVAL, NULL, (const char *what, uint64_t value), "%s cannot be %llu", what,                          \
	  (unsigned long long)value)                                                                                   \
	X(range, EINVAL, NULL, (const char *what, uint64_t value, uint64_t low, uint64_t high),                        \
	  "%s is %llu; allowed: %llu to %llu", what, (unsigned long long)value, (unsigned long long)low,               \
	  (unsigned long long)high)                                                                                    \
	X(unexplained, EINVAL, NULL, (const char *words), "%s", words)                                                 \
	X(combination, EINVAL, NULL, (const char *words), "%s", words)                                                 \
	X(forked, EINVAL, "open the device again in the child", (void),                                                \
	  "the device was opened by the parent process")                                                               \
	/* resources */                                                                                                \
	X(memory, ENOMEM, NULL, (const char *what), "no memory for %s", what)                                          \
	X(limit, ENOMEM, "max_qp, max_cq, max_mr, max_srq in the configuration", (const char *what, uint64_t limit),   \
	  "the adapter has no more than %llu %s", (unsigned long long)limit, what)                                     \
	X(numbers, ENOMEM, NULL, (uint64_t limit, const char *what), "there are no more than %llu %s",                 \
	  (unsigned long long)limit, what)                                                                             \
	X(injected, ENOMEM, "verbatim inject, VERBATIM_INJECT", (void), "it was asked to fail")                        \
	X(device_fatal, EIO, "close all contexts of the device and open it again", (const char *adapter),              \
	  "%s has had a fatal error (IBV_EVENT_DEVICE_FATAL)", adapter)                                                \
	X(one_pd, ESRCH, NULL, (void), "the device has one protection domain, and it is taken")                        \
	X(busy, EBUSY, NULL, (const char *users), "still used by %s", users)                                           \
	/* what the card does not have */                                                                              \
	X(not_mlx, EOPNOTSUPP, NULL, (const char *format), "the device is no %s device", format)                       \
	X(not_mlx5, EINVAL, NULL, (void), "the device is no mlx5 device")                                              \
	X(function, EOPNOTSUPP, "docs/deviations.md says until when", (void), "not supported")                         \
	X(unsupported, EOPNOTSUPP, "docs/deviations.md says until when", (const char *what),                           \
	  "%s: not supported", what)                                                                                   \
	X(unsupported_value, EOPNOTSUPP, "docs/deviations.md says until when",                                         \
	  (const char *what, uint64_t value), "%s 0x%llx: not supported", what, (unsigned long long)value)             \
	X(no_function, EINVAL, "functions = in the configuration", (uint32_t vhca_id),                                 \
	  "the adapter has no emulated function with vhca_id 0x%x", vhca_id)                                           \
	/* objects by command */                                                                                       \
	X(no_object, EINVAL, NULL, (const char *field, uint32_t number),                                               \
	  "%s 0x%x: there is no such object of this context", field, number)                                           \
	X(command_state, EINVAL, NULL, (const char *state), "no transition from %s by this command", state)            \
	X(no_umem, EINVAL, "mlx5dv_devx_umem_reg", (const char *what, uint64_t size, uint64_t offset, uint32_t number),\
	  "%s: %llu bytes at offset 0x%llx are not in a umem %u of this context", what,                                \
	  (unsigned long long)size, (unsigned long long)offset, number)                                                \
	/* steering */                                                                                                 \
	X(cannot, EOPNOTSUPP, NULL, (const char *words), "%s", words)                                                  \
	X(exists, EEXIST, NULL, (const char *words), "%s", words)                                                      \
	/* memory regions */                                                                                           \
	X(remote_without_local, EINVAL, "add IBV_ACCESS_LOCAL_WRITE", (uint64_t access),                               \
	  "access 0x%llx allows remote writes without local ones", (unsigned long long)access)                         \
	X(unmapped, EFAULT, NULL, (const void *addr, uint64_t length, const char *how),                                \
	  "%llu bytes at %p are not all mapped and %s", (unsigned long long)length, addr, how)                         \
	X(wraps, EINVAL, NULL, (const void *addr, uint64_t length),                                                    \
	  "%llu bytes at %p reach beyond the address space", (unsigned long long)length, addr)                         \
	/* queue pair states */                                                                                        \
	X(not_in_state, EINVAL, NULL, (const char *given, const char *is),                                             \
	  "cur_qp_state is %s, the queue pair is in %s", given, is)                                                    \
	X(transition, EINVAL, NULL, (const char *from, const char *to, const char *type),                              \
	  "no transition from %s to %s for a %s queue pair", from, to, type)                                           \
	X(attr_missing, EINVAL, NULL, (const char *names), "attr_mask lacks %s", names)                                \
	X(attr_extra, EINVAL, NULL, (const char *names), "attr_mask has %s, which this transition does not take",      \
	  names)                                                                                                       \
	X(failed_meanwhile, EINVAL, NULL, (const char *state),                                                         \
	  "the queue pair went to %s while it was modified", state)                                                    \
	X(migration, EINVAL, NULL, (void), "alternate paths do not exist on Ethernet")                                 \
	X(no_grh, EINVAL, "is_global = 1 and grh.dgid, grh.sgid_index", (void),                                        \
	  "the address vector has no GRH, which RoCE needs")                                                           \
	X(sgid_index, EINVAL, "verbatim devices -v lists the GIDs", (unsigned int index, unsigned int count,           \
	  const char *adapter), "sgid_index %u, %s has GIDs 0 to %u", index, adapter, count - 1)                       \
	X(no_neighbour, EHOSTUNREACH, NULL, (void), "the neighbour of this GID is unknown")                            \
	X(port, EINVAL, NULL, (unsigned int port, unsigned int ports, const char *adapter),                            \
	  "port %u, %s has ports 1 to %u", port, adapter, ports)                                                       \
	X(path_mtu, EINVAL, "mtu = in the configuration",                                                              \
	  (unsigned int mtu, unsigned int port, const char *adapter, unsigned int has),                                \
	  "path_mtu %u to another host, port %u of %s has %u", mtu, port, adapter, has)                                \
	/* hbl devices */                                                                                              \
	X(hbl_port, EINVAL, "ports_mask at hbldv_open_device, ports = in the configuration", (uint32_t port),          \
	  "port %u is not in the context's mask", port)                                                                \
	X(hbl_not_set_up, EPERM, "hbldv_set_port_ex", (uint32_t port), "port %u is not set up", port)                  \
	X(hbl_set_up, EPERM, NULL, (uint32_t port), "port %u is set up already", port)                                 \
	X(hbl_not_advanced, EINVAL, "HBLDV_PORT_CAP_ADVANCED in hbldv_set_port_ex", (uint32_t port),                   \
	  "congestion control needs an advanced port, port %u is none", port)                                          \
	X(hbl_used_up, EBUSY, NULL, (const char *what, uint32_t port), "no %s is free on port %u", what, port)         \
	X(hbl_owned, EBUSY, "an hbl device has one owner; others use another hbl_N", (const char *name),               \
	  "%s is in use", name)                                                                                        \
	X(hbl_fd, ENODEV, "open /dev/accel/accelN under verbatim run", (int fd),                                       \
	  "descriptor %d is not of an accelerator", fd)                                                                \
	X(hbl_unreachable, EHOSTUNREACH, "the peer's GID, and LOOPBACK for the own device", (void),                    \
	  "the GID belongs to no hbl port that this port reaches")                                                     \
	/* posting */                                                                                                  \
	X(post_state, EINVAL, NULL, (const char *state), "the queue pair is in %s", state)                             \
	X(post_full, ENOMEM, "max_send_wr, max_recv_wr or max_wr at creation; poll completions",                       \
	  (uint64_t size), "the queue is full: %llu requests", (unsigned long long)size)                               \
	X(post_sge, EINVAL, "max_send_sge or max_recv_sge at creation", (int num, uint64_t max),                       \
	  "num_sge %d; allowed: 0 to %llu", num, (unsigned long long)max)                                              \
	X(post_inline, EINVAL, "max_inline_data at creation", (uint64_t len, uint64_t max),                            \
	  "%llu bytes inline; the queue takes %llu", (unsigned long long)len, (unsigned long long)max)                 \
	X(post_opcode, EINVAL, NULL, (unsigned int opcode, const char *type),                                          \
	  "opcode %u does not exist for a %s queue pair", opcode, type)                                                \
	X(post_request, EINVAL, NULL, (unsigned int opcode),                                                           \
	  "the request with opcode %u has a field that cannot be", opcode)                                             \
	/* work requests that end with an error */                                                                     \
	X(wr_key, EINVAL, NULL, (uint32_t key, const char *why, uint64_t addr, uint64_t len),                          \
	  "key 0x%x %s (%llu bytes at 0x%llx)", key, why, (unsigned long long)len, (unsigned long long)addr)           \
	X(wr_gone, EFAULT, NULL, (const char *whose),                                                                  \
	  "%s memory was unmapped after it was registered", whose)                                                     \
	X(wr_peer_key, EINVAL, "the peer's log has the reason", (uint32_t rkey, uint64_t addr, uint64_t len),          \
	  "the peer refused rkey 0x%x for %llu bytes at 0x%llx", rkey, (unsigned long long)len,                        \
	  (unsigned long long)addr)                                                                                    \
	X(wr_peer_request, EINVAL, "the peer's log has the reason", (void),                                            \
	  "the peer refused the request: right of its queue pair missing, or message too long")                        \
	X(wr_peer_buffer, EINVAL, "the peer's log has the reason", (void),                                             \
	  "the peer's receive request is bad")                                                                         \
	X(wr_injected, EIO, "verbatim inject, VERBATIM_INJECT", (void), "it was asked to fail")                        \
	X(wr_port_down, EHOSTDOWN, "verbatim inject CARD port 1 up", (const char *adapter),                            \
	  "the port of %s is down", adapter)                                                                           \
	X(wr_no_path, EHOSTUNREACH, "peers must be of this host, user, network and PID namespace",                     \
	  (const char *gid, uint32_t qpn), "nobody here has GID %s and queue pair 0x%x", gid, qpn)                     \
	X(wr_no_answer, ETIMEDOUT, "timeout and retry_cnt; is the peer in RTR and connected to this queue pair?",      \
	  (uint32_t qpn, unsigned int retries), "queue pair 0x%x did not answer, %u retries", qpn, retries)            \
	X(wr_peer_died, ECONNRESET, NULL, (uint32_t qpn), "the process of queue pair 0x%x is gone", qpn)               \
	X(wr_rnr, EAGAIN, "rnr_retry, or post receives earlier", (uint32_t qpn, unsigned int retries),                 \
	  "queue pair 0x%x had no receive request posted, %u retries", qpn, retries)                                   \
	X(wr_answer, EPROTO, NULL, (void), "an answer does not fit the request")                                       \
	X(wr_format, EINVAL, NULL, (unsigned int opcode),                                                              \
	  "the WQE cannot be decoded, or names an operation this queue does not have (opcode 0x%x)", opcode)           \
	X(wr_doorbell, EINVAL, NULL, (unsigned int blocks, unsigned int rung),                                         \
	  "the WQE has %u blocks, the doorbell announced %u", blocks, rung)                                            \
	X(wr_read_on_uc, EINVAL, NULL, (void), "UC has neither READ, atomics nor invalidation")                        \
	X(wr_no_rd_atomic, EINVAL, "max_rd_atomic in ibv_modify_qp", (void),                                           \
	  "READ or atomic with max_rd_atomic 0")                                                                       \
	X(wr_long, EINVAL, NULL, (uint64_t len, uint64_t max), "%llu bytes; a message has at most %llu",               \
	  (unsigned long long)len, (unsigned long long)max)                                                            \
	X(wr_datagram, EINVAL, "mtu = in the configuration", (uint64_t len, unsigned int mtu, const char *adapter),    \
	  "a datagram of %llu bytes, %s has an MTU of %u", (unsigned long long)len, adapter, mtu)                      \
	X(wr_atomic_len, EINVAL, NULL, (uint64_t len), "an atomic with %llu bytes instead of 8",                       \
	  (unsigned long long)len)                                                                                     \
	X(wr_local_len, EINVAL, NULL, (uint64_t from, uint64_t to),                                                    \
	  "%llu bytes to copy into %llu; both sides have the same length, that of a matrix is element size x rows x "  \
	  "columns",                                                                                                   \
	  (unsigned long long)from, (unsigned long long)to)                                                            \
	X(wr_invalidate, EINVAL, NULL, (uint32_t key), "key 0x%x cannot be invalidated here", key)                     \
	X(wr_frame, EINVAL, NULL, (uint64_t len), "%llu bytes do not make a frame that can be sent",                   \
	  (unsigned long long)len)                                                                                     \
	X(wr_flushed, ECANCELED, NULL, (unsigned int count, const char *queue),                                        \
	  "%u requests of the %s queue flushed", count, queue)                                                         \
	/* requests of a peer that our side refuses */                                                                 \
	X(in_right, EACCES, "qp_access_flags in ibv_modify_qp", (uint32_t from, const char *right),                    \
	  "queue pair 0x%x asked for what needs %s here", from, right)                                                 \
	X(in_key, EACCES, NULL, (uint32_t from, uint32_t key, const char *why, uint64_t addr, uint64_t len),           \
	  "queue pair 0x%x: rkey 0x%x %s (%llu bytes at 0x%llx)", from, key, why, (unsigned long long)len,             \
	  (unsigned long long)addr)                                                                                    \
	X(in_length, EMSGSIZE, "larger receive buffers", (uint64_t len, uint64_t capacity),                            \
	  "a message of at least %llu bytes for a receive request of %llu", (unsigned long long)len,                   \
	  (unsigned long long)capacity)                                                                                \
	X(in_wqe, EINVAL, NULL, (void), "the receive WQE cannot be decoded")                                           \
	X(in_request, EPROTO, NULL, (uint32_t from),                                                                   \
	  "queue pair 0x%x sent a request that cannot be (order, alignment or count)", from)
/* clang-format on */
