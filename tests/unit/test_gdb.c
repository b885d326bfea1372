// SPDX-License-Identifier: MIT
/* The remote serial protocol, spoken by a test to a session on a process that is none (gdb_fake.h). */
#include <elf.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "gdb/gdb.h"
#include "gdb_fake.h"

#define NAME "/dpa/1-1/fake.elf"

struct bed {
	struct vb_dpa_debug fake;
	struct vb_gdb_target target;
	atomic_int exit_code;
	pthread_t thread;
	struct vb_file peer;
	int fd, quit;
	enum vb_gdb_end end;
	unsigned int kills;
	union {
		Elf64_Ehdr head;
		char bytes[20000];
	} elf;
	char reply[70000];
};

static void *serve(void *arg)
{
	struct bed *bed = arg;

	bed->end = vb_gdb_serve(&bed->target, &bed->fake, &bed->peer, bed->quit);
	vb_file_close(&bed->peer);
	return NULL;
}

static void name_thread(void *arg, uint32_t thread, char *name, size_t size)
{
	if (thread == 12)
		snprintf(name, size, "RPC f");
}

static void count_kill(void *arg)
{
	((struct bed *)arg)->kills++;
}

static struct bed *begin(unsigned int threads)
{
	struct bed *bed = calloc(1, sizeof(*bed));
	int fds[2];

	assert_non_null(bed);
	fake_init(&bed->fake);
	for (unsigned int i = 0; i < threads; i++)
		fake_add(&bed->fake, 10 + i, i == 1 ? "a<b&\"c\x01" : "RPC", i != 2);
	for (size_t i = sizeof(bed->elf.head); i < sizeof(bed->elf.bytes); i++)
		bed->elf.bytes[i] = (char)(i * 7);
	bed->elf.head.e_entry = FAKE_ENTRY - 0x1000;
	bed->quit = eventfd(0, EFD_CLOEXEC);
	bed->target = (struct vb_gdb_target){ .process = &bed->fake.process,
					      .elf_name = NAME,
					      .elf = &bed->elf,
					      .elf_len = sizeof(bed->elf.bytes),
					      .name = name_thread,
					      .arg = bed,
					      .exit_code = &bed->exit_code };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	bed->fd = fds[0];
	assert_int_equal(vb_file_keep(&bed->peer, fds[1]), 0);
	return bed;
}

static void start(struct bed *bed)
{
	assert_int_equal(pthread_create(&bed->thread, NULL, serve, bed), 0);
}

static void finish(struct bed *bed, enum vb_gdb_end end)
{
	pthread_join(bed->thread, NULL);
	assert_int_equal(bed->end, end);
	if (bed->fd >= 0)
		close(bed->fd);
	close(bed->quit);
	fake_free(&bed->fake);
	free(bed);
}

static void hang_up(struct bed *bed)
{
	close(bed->fd);
	bed->fd = -1;
	finish(bed, VB_GDB_LOST);
}

static int get(struct bed *bed)
{
	uint8_t c;

	return read(bed->fd, &c, 1) == 1 ? c : -1;
}

static void put_raw(struct bed *bed, const char *bytes, size_t len)
{
	assert_int_equal(send(bed->fd, bytes, len, MSG_NOSIGNAL), len);
}

static void put(struct bed *bed, const char *body, size_t len)
{
	char *frame = malloc(len + 8);
	uint8_t sum = 0;

	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + (uint8_t)body[i]);
	frame[0] = '$';
	memcpy(frame + 1, body, len);
	snprintf(frame + 1 + len, 7, "#%02x", sum);
	put_raw(bed, frame, len + 4);
	free(frame);
}

/* The next packet; its sum is checked. Acknowledgements before it are skipped. */
static const char *receive(struct bed *bed)
{
	size_t n = 0;
	uint8_t sum = 0;
	char hex[3] = "";
	int c;

	do
		c = get(bed);
	while (c == '+' || c == '-');
	assert_int_equal(c, '$');
	while ((c = get(bed)) != '#') {
		assert_true(c >= 0 && n < sizeof(bed->reply) - 1);
		bed->reply[n++] = (char)c;
		sum = (uint8_t)(sum + c);
	}
	bed->reply[n] = '\0';
	hex[0] = (char)get(bed);
	hex[1] = (char)get(bed);
	assert_int_equal(strtol(hex, NULL, 16), sum);
	return bed->reply;
}

static const char *ask(struct bed *bed, const char *body)
{
	put(bed, body, strlen(body));
	return receive(bed);
}

#define EXPECT(bed, body, reply) assert_string_equal(ask(bed, body), reply)

/* ---- framing ---- */

static void test_damaged_packets_are_asked_for_again(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	put_raw(bed, "noise+$qC#00", 12);
	assert_int_equal(get(bed), '-');
	put_raw(bed, "$qC#b4", 6);
	assert_int_equal(get(bed), '+');
	assert_string_equal(receive(bed), "QCc");
	put_raw(bed, "-", 1); /* the reply was damaged */
	assert_string_equal(receive(bed), "QCc");
	put_raw(bed, "$m10$qC#b4", 10); /* one that was cut */
	assert_string_equal(receive(bed), "QCc");
	/* From here on nobody acknowledges. */
	EXPECT(bed, "QStartNoAckMode", "OK");
	hang_up(bed);
}

static void test_without_acks_a_damaged_packet_is_refused(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	EXPECT(bed, "QStartNoAckMode", "OK");
	put_raw(bed, "$qC#00", 6);
	assert_string_equal(receive(bed), "E4a");
	put_raw(bed, "$qC#zz", 6);
	assert_string_equal(receive(bed), "E4a");
	EXPECT(bed, "qC", "QCc");
	hang_up(bed);
}

static void test_too_long_packet_is_refused(void **state)
{
	struct bed *bed = begin(3);
	char *big = malloc(1 << 20);

	memset(big, 'a', 1 << 20);
	start(bed);
	EXPECT(bed, "QStartNoAckMode", "OK");
	for (size_t i = 0; i < 1 << 20; i += 1 << 14) /* the socket's buffer is smaller */
		put_raw(bed, i ? big : "$M2000,1:", i ? 1 << 14 : 9);
	put_raw(bed, "#00", 3);
	assert_string_equal(receive(bed), "E4a");
	EXPECT(bed, "qC", "QCc");
	free(big);
	hang_up(bed);
}

/* What is unknown is answered with nothing, as the protocol wants it. */
static void test_unknown_packets(void **state)
{
	static const char *const unknown[] = { "vMustReplyEmpty",
					       "!",
					       "qTStatus",
					       "QNonStop:1",
					       "R00",
					       "qRcmd,00",
					       "vAttach;1",
					       "vRun;",
					       "Z5,1000,2",
					       "z7,1,1",
					       "qXfer:auxv:read::0,100",
					       "qXfer:",
					       "A",
					       "bs",
					       "" };
	struct bed *bed = begin(3);

	start(bed);
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		EXPECT(bed, unknown[i], "");
	hang_up(bed);
}

static void test_bad_arguments(void **state)
{
	static const char *const bad[] = { "m",
					   "m1000",
					   "m1000,",
					   "m,10",
					   "m1000,10x",
					   "M1000,2:00",
					   "M1800,1:zz",
					   "M1800,1",
					   "M1800,ffffffffffffffff:00",
					   "X1800,5:ab",
					   "p",
					   "p26",
					   "pffffffffffffffffff",
					   "P1",
					   "P1=",
					   "P1=00",
					   "P26=0000000000000000",
					   "G00",
					   "Hx1",
					   "Hgzz",
					   "Hg99",
					   "T99",
					   "Tfffffffff",
					   "vCont;",
					   "vCont;x",
					   "vCont;c:",
					   "vCont;r1000",
					   "vCont;r2,1",
					   "vCont;c:1junk",
					   "vCont;C",
					   "Z0",
					   "Z0,1000",
					   "Z2,1900,0",
					   "Z2,ffffffffffffffff,2",
					   "Z0,9000,2",
					   "C",
					   "C05junk",
					   "s9999999999999999999",
					   "qXfer:features:read:other.xml:0,100",
					   "qXfer:features:read:target.xml:0",
					   "qXfer:features:read:target.xml:fffff,10",
					   "qThreadExtraInfo,99" };
	struct bed *bed = begin(3);

	start(bed);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (ask(bed, bad[i])[0] != 'E')
			fail_msg("%s: %s", bad[i], bed->reply);
	assert_int_equal(bed->fake.resumes, 0);
	assert_int_equal(bed->fake.nbreaks + bed->fake.nwatches, 0);
	for (unsigned int i = 0; i < FAKE_SIZE; i++)
		assert_int_equal(bed->fake.process.memory[i], (uint8_t)i);
	hang_up(bed);
}

/* ---- what a debugger asks first ---- */

static void test_supported(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	EXPECT(bed, "qSupported:multiprocess+;swbreak+;hwbreak-;xmlRegisters=i386",
	       "PacketSize=4000;QStartNoAckMode+;vContSupported+;qXfer:features:read+;"
	       "qXfer:threads:read+;qXfer:exec-file:read+;swbreak+");
	EXPECT(bed, "vCont?", "vCont;c;C;s;S;t;r");
	EXPECT(bed, "qAttached", "1");
	EXPECT(bed, "qOffsets", "Text=1000;Data=1000;Bss=1000");
	EXPECT(bed, "qSymbol::", "OK");
	EXPECT(bed, "?", "T05thread:c;core:e;");
	hang_up(bed);
}

/* Piece by piece, and the pieces make one document. */
static char *read_document(struct bed *bed, const char *object, const char *annex, size_t step)
{
	static char text[100000];
	char packet[128];
	size_t at = 0;

	for (;;) {
		snprintf(packet, sizeof(packet), "qXfer:%s:read:%s:%zx,%zx", object, annex, at,
			 step);
		ask(bed, packet);
		assert_true(bed->reply[0] == 'm' || bed->reply[0] == 'l');
		strcpy(text + at, bed->reply + 1); /* no escapes in these documents */
		at += strlen(bed->reply + 1);
		if (bed->reply[0] == 'l')
			return text;
		assert_true(bed->reply[1]);
	}
}

static void test_target_description(void **state)
{
	struct bed *bed = begin(3);
	const char *xml;

	start(bed);
	xml = read_document(bed, "features", "target.xml", 100);
	assert_non_null(strstr(xml, "<architecture>riscv:rv64</architecture>"));
	assert_non_null(strstr(xml, "org.gnu.gdb.riscv.cpu"));
	assert_non_null(strstr(xml, "name=\"pc\" bitsize=\"64\" type=\"code_ptr\" regnum=\"32\""));
	assert_non_null(strstr(xml, "name=\"instret\" bitsize=\"64\" type=\"int\" regnum=\"35\""));
	assert_non_null(strstr(xml, "</target>\n"));
	hang_up(bed);
}

static void test_threads(void **state)
{
	struct bed *bed = begin(3);
	const char *xml;

	start(bed);
	xml = read_document(bed, "threads", "", 0x1000);
	assert_non_null(strstr(xml, "<thread id=\"a\" core=\"12\" name=\"RPC\">idle</thread>"));
	assert_non_null(strstr(xml, "name=\"a&lt;b&amp;&quot;c?\">idle<"));
	assert_non_null(strstr(xml, "<thread id=\"c\" core=\"14\" name=\"RPC f\"></thread>"));
	EXPECT(bed, "qfThreadInfo", "ma,b,c");
	EXPECT(bed, "qsThreadInfo", "l");
	EXPECT(bed, "qThreadExtraInfo,a", "5250432069646c65");
	EXPECT(bed, "Ta", "OK");
	EXPECT(bed, "Hga", "OK");
	EXPECT(bed, "qC", "QCa");
	EXPECT(bed, "Hg0", "OK"); /* any: one that does something, or the selected one */
	EXPECT(bed, "Hc-1", "OK");
	hang_up(bed);
}

/* A process without threads has one to talk about: gdb takes a target without any for dead. */
static void test_process_without_threads(void **state)
{
	struct bed *bed = begin(0);

	start(bed);
	EXPECT(bed, "?", "T05thread:7fffffff;");
	EXPECT(bed, "qfThreadInfo", "m7fffffff");
	assert_non_null(strstr(read_document(bed, "threads", "", 0x1000), "name=\"process\""));
	EXPECT(bed, "T7fffffff", "OK");
	assert_int_equal(strlen(ask(bed, "g")), 33 * 16);
	EXPECT(bed, "p20", "0000000000000000");
	EXPECT(bed, "P20=0000000000000000", "E03");
	EXPECT(bed, "m1ffe,10", "feff");
	EXPECT(bed, "m2000,10", "E0e");
	EXPECT(bed, "M1800,2:1234", "OK");
	EXPECT(bed, "m1800,2", "1234");
	EXPECT(bed, "M1000,1:00", "E0e");
	EXPECT(bed, "Z0,1010,2", "OK");
	assert_int_equal(bed->fake.nbreaks, 1);
	/* One that comes meanwhile is there, too, and the first stays: gdb asserts that. */
	fake_add(&bed->fake, 10, "RPC", false);
	EXPECT(bed, "qfThreadInfo", "ma,7fffffff");
	EXPECT(bed, "T7fffffff", "OK");
	EXPECT(bed, "?", "T05thread:7fffffff;");
	bed->fake.next = (struct vb_dpa_stopped){ VB_DPA_STOP_BREAK, .thread = 10 };
	bed->fake.script = true;
	assert_int_equal(strncmp(ask(bed, "vCont;c"), "T05thread:a;", 12), 0);
	EXPECT(bed, "qfThreadInfo", "ma");
	EXPECT(bed, "T7fffffff", "E03");
	hang_up(bed);
}

/* ---- registers and memory ---- */

static void test_registers(void **state)
{
	struct bed *bed = begin(3);
	char all[33 * 16 + 2];

	start(bed);
	EXPECT(bed, "p1", "010c000000000000");
	EXPECT(bed, "p0", "0000000000000000");
	EXPECT(bed, "p20", "1010000000000000");
	EXPECT(bed, "p21", "4e00000000000000"); /* cycle */
	EXPECT(bed, "p23", "4d00000000000000"); /* instret */
	EXPECT(bed, "P23=0000000000000000", "E1e");
	EXPECT(bed, "Pa=8877665544332211", "OK");
	assert_int_equal(bed->fake.threads[2].state.x[10], 0x1122334455667788);
	assert_int_equal(bed->fake.threads[2].state.pc, FAKE_ENTRY);
	all[0] = 'G';
	strcpy(all + 1, ask(bed, "g"));
	memcpy(all + 1 + 32 * 16, "2010", 4);
	EXPECT(bed, all, "OK");
	assert_int_equal(bed->fake.threads[2].state.pc, 0x1020);
	/* An idle thread shows nothing, but the trap that ended it. */
	EXPECT(bed, "Hga", "OK");
	EXPECT(bed, "p1", "0000000000000000");
	EXPECT(bed, "p23", "4d00000000000000");
	bed->fake.threads[0].state.cause = VB_DPA_CAUSE_LOAD;
	EXPECT(bed, "p1", "010a000000000000");
	hang_up(bed);
}

static void test_memory(void **state)
{
	static const char binary[] = "X1900,4:\x7d\x03\x7d\x04\x7d\x5d\0";
	struct bed *bed = begin(3);

	start(bed);
	EXPECT(bed, "m1100,4", "00010203");
	EXPECT(bed, "m1ffc,8", "fcfdfeff"); /* what there is */
	EXPECT(bed, "m2000,4", "E0e");
	EXPECT(bed, "mfffffffffffffff0,20", "E0e");
	EXPECT(bed, "m1100,0", "");
	assert_int_equal(strlen(ask(bed, "m1000,100000")), 2 * FAKE_SIZE);
	EXPECT(bed, "M1901,3:aabbcc", "OK");
	EXPECT(bed, "m1900,5", "00aabbcc04");
	EXPECT(bed, "M1000,1:00", "E0e"); /* text */
	EXPECT(bed, "X1900,0:", "OK");
	put(bed, binary, sizeof(binary) - 1); /* # $ } and 0 */
	assert_string_equal(receive(bed), "OK");
	EXPECT(bed, "m1900,4", "23247d00");
	hang_up(bed);
}

/* ---- breakpoints, going on, stops ---- */

static void test_one_address_as_two_kinds(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	assert_non_null(strstr(ask(bed, "qSupported:swbreak+;hwbreak+"), "swbreak+;hwbreak+"));
	EXPECT(bed, "Z0,1010,2", "OK");
	EXPECT(bed, "Z0,1010,4", "OK");
	EXPECT(bed, "Z1,1010,2", "OK");
	EXPECT(bed, "z0,1010,2", "OK");
	assert_int_equal(bed->fake.nbreaks, 1);
	bed->fake.next = (struct vb_dpa_stopped){ VB_DPA_STOP_BREAK, .thread = 10 };
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:a;core:c;hwbreak:;");
	EXPECT(bed, "Z0,1010,2", "OK");
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:a;core:c;swbreak:;");
	EXPECT(bed, "z0,1010,2", "OK");
	EXPECT(bed, "z1,1010,2", "OK");
	assert_int_equal(bed->fake.nbreaks, 0);
	EXPECT(bed, "z1,1010,2", "OK");
	hang_up(bed);
}

static void test_watchpoints(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	EXPECT(bed, "Z2,1904,4", "OK");
	EXPECT(bed, "Z3,1904,4", "OK");
	assert_int_equal(bed->fake.nwatches, 1);
	assert_int_equal(bed->fake.watches[0].watch, VB_DPA_WATCH_READ | VB_DPA_WATCH_WRITE);
	EXPECT(bed, "z3,1904,4", "OK");
	assert_int_equal(bed->fake.watches[0].watch, VB_DPA_WATCH_WRITE);
	/* An access in front of it that reaches into it is reported where gdb looks for it. */
	bed->fake.next =
		(struct vb_dpa_stopped){ VB_DPA_STOP_WATCH, 12, 0x1900, VB_DPA_WATCH_WRITE };
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:c;core:e;watch:1904;");
	bed->fake.next.addr = 0x1906;
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:c;core:e;watch:1906;");
	EXPECT(bed, "z2,1904,4", "OK");
	EXPECT(bed, "Z4,1910,8", "OK");
	bed->fake.next.addr = 0x1910;
	bed->fake.next.watch = VB_DPA_WATCH_READ;
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:c;core:e;awatch:1910;");
	EXPECT(bed, "z4,1910,8", "OK");
	assert_int_equal(bed->fake.nwatches, 0);
	hang_up(bed);
}

/* gdb's call of a function returns to the stack; an ebreak of the program is no breakpoint of the debugger. */
static void test_breakpoints_outside_of_the_text(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	assert_non_null(strstr(ask(bed, "qSupported:swbreak+"), "swbreak+"));
	EXPECT(bed, "Z0,1900,2", "OK");
	assert_int_equal(bed->fake.nbreaks, 0);
	bed->fake.next = (struct vb_dpa_stopped){ VB_DPA_STOP_TRAP, .thread = 12 };
	bed->fake.threads[2].state.cause = VB_DPA_CAUSE_FETCH;
	bed->fake.threads[2].state.pc = 0x1900;
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:c;core:e;swbreak:;");
	EXPECT(bed, "z0,1900,2", "OK");
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T0bthread:c;core:e;");
	EXPECT(bed, "Z0,9000,2", "E0e"); /* nothing is there */
	bed->fake.next.why = VB_DPA_STOP_BREAK;
	bed->fake.threads[2].state.cause = VB_DPA_CAUSE_BREAKPOINT;
	bed->fake.threads[2].state.pc = 0x1010;
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:c;core:e;");
	hang_up(bed);
}

/* Out of the outermost function: there is nothing to break at, so the thread is stepped to there. */
static void test_breakpoint_at_the_return_address(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	assert_non_null(strstr(ask(bed, "qSupported:swbreak+"), "swbreak+"));
	EXPECT(bed, "Z0,fffffffffffff000,2", "OK");
	assert_int_equal(bed->fake.nbreaks, 0);
	bed->fake.next = (struct vb_dpa_stopped){ VB_DPA_STOP_STEP, .thread = 12 };
	bed->fake.threads[2].state.pc = VB_DPA_RETURN_PC;
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:c;core:e;swbreak:;");
	assert_int_equal(bed->fake.nhow, 2);
	assert_int_equal(bed->fake.how[0].thread, 12);
	assert_int_equal(bed->fake.how[0].go, VB_DPA_GO_STEP);
	assert_int_equal(bed->fake.how[0].to, VB_DPA_RETURN_PC);
	assert_int_equal(bed->fake.how[1].go, VB_DPA_GO_ON);
	EXPECT(bed, "z0,fffffffffffff000,2", "OK");
	bed->fake.script = true;
	EXPECT(bed, "vCont;c", "T05thread:c;core:e;");
	assert_int_equal(bed->fake.nhow, 1);
	hang_up(bed);
}

static void test_points_have_a_limit(void **state)
{
	struct bed *bed = begin(3);
	char packet[32];

	start(bed);
	for (unsigned int i = 0; i < 8; i++) {
		snprintf(packet, sizeof(packet), "Z0,%x,2", 0x1010 + i * 2);
		EXPECT(bed, packet, "OK");
	}
	EXPECT(bed, "Z0,1100,2", "E0c"); /* the fake's memory is full */
	EXPECT(bed, "z0,1010,2", "OK");
	EXPECT(bed, "Z0,1100,2", "OK");
	hang_up(bed);
}

static void test_resume(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	bed->fake.next = (struct vb_dpa_stopped){ VB_DPA_STOP_STEP, .thread = 12 };
	bed->fake.script = true;
	EXPECT(bed, "vCont;r1000,1010:c;s:b;C0b:a;t", "T05thread:c;core:e;");
	assert_int_equal(bed->fake.nhow, 4);
	assert_int_equal(bed->fake.how[0].go, VB_DPA_GO_STEP);
	assert_int_equal(bed->fake.how[0].thread, 12);
	assert_int_equal(bed->fake.how[0].from, 0x1000);
	assert_int_equal(bed->fake.how[0].to, 0x1010);
	assert_int_equal(bed->fake.how[1].go, VB_DPA_GO_STEP);
	assert_int_equal(bed->fake.how[1].from, bed->fake.how[1].to);
	assert_int_equal(bed->fake.how[2].go, VB_DPA_GO_ON);
	assert_int_equal(bed->fake.how[3].go, VB_DPA_GO_STAY);
	assert_int_equal(bed->fake.how[3].thread, 0);
	/* Debuggers that do not know vCont. */
	bed->fake.script = true;
	EXPECT(bed, "s", "T05thread:c;core:e;");
	assert_int_equal(bed->fake.how[0].thread, 12);
	assert_int_equal(bed->fake.how[0].go, VB_DPA_GO_STEP);
	bed->fake.script = true;
	EXPECT(bed, "C0b;1044", "T05thread:c;core:e;");
	assert_int_equal(bed->fake.threads[2].state.pc, 0x1044);
	assert_int_equal(bed->fake.how[0].go, VB_DPA_GO_ON);
	hang_up(bed);
}

static void test_signal_of_each_trap(void **state)
{
	static const struct {
		enum vb_dpa_cause cause;
		unsigned int signal;
	} traps[] = {
		{ VB_DPA_CAUSE_FETCH, 11 },     { VB_DPA_CAUSE_ILLEGAL, 4 },
		{ VB_DPA_CAUSE_BREAKPOINT, 5 }, { VB_DPA_CAUSE_LOAD_MISALIGNED, 10 },
		{ VB_DPA_CAUSE_LOAD, 11 },      { VB_DPA_CAUSE_STORE_MISALIGNED, 10 },
		{ VB_DPA_CAUSE_STORE, 11 },     { VB_DPA_CAUSE_ECALL, 12 },
		{ VB_DPA_CAUSE_WATCHDOG, 24 },
	};
	struct bed *bed = begin(3);
	char reply[64];

	start(bed);
	for (size_t i = 0; i < sizeof(traps) / sizeof(traps[0]); i++) {
		bed->fake.next = (struct vb_dpa_stopped){ VB_DPA_STOP_TRAP, .thread = 11 };
		bed->fake.threads[1].state.cause = traps[i].cause;
		bed->fake.threads[1].state.tval = 0x42;
		bed->fake.script = true;
		snprintf(reply, sizeof(reply), "T%02xthread:b;core:d;", traps[i].signal);
		EXPECT(bed, "vCont;c", reply);
		EXPECT(bed, "p25", "4200000000000000");
	}
	hang_up(bed);
}

static void test_interrupt(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	EXPECT(bed, "qC", "QCc");
	put_raw(bed, "\x03", 1); /* it is stopped: nothing */
	EXPECT(bed, "qC", "QCc");
	put(bed, "vCont;c", 7);
	put_raw(bed, "\x03", 1);
	assert_string_equal(receive(bed), "T02thread:c;core:e;");
	/* While it runs nothing else is answered but with an error, and it goes on running. */
	put(bed, "vCont;c", 7);
	EXPECT(bed, "g", "E16");
	EXPECT(bed, "m1000,4", "E16");
	EXPECT(bed, "Z0,1010,2", "E16");
	EXPECT(bed, "?", "E16");
	EXPECT(bed, "vCont;c", "E16");
	fake_stop(&bed->fake, &(struct vb_dpa_stopped){ VB_DPA_STOP_STEP, .thread = 11 });
	assert_string_equal(receive(bed), "T05thread:b;core:d;");
	hang_up(bed);
}

/* ---- the device ELF ---- */

static void test_file(void **state)
{
	static const char open[] = "vFile:open:2f6470612f312d312f66616b652e656c66,0,0";
	struct bed *bed = begin(3);
	size_t at = 0;

	start(bed);
	assert_string_equal(read_document(bed, "exec-file", "1", 0x1000), NAME);
	EXPECT(bed, "vFile:setfs:0", "F0");
	EXPECT(bed, "vFile:pread:3,10,0", "F-1,9");
	EXPECT(bed, "vFile:open:2f6574632f706173737764,0,0", "F-1,2"); /* /etc/passwd */
	EXPECT(bed, "vFile:open:2f6470612f312d312f66616b652e656c6600,0,0", "F-1,2");
	EXPECT(bed, "vFile:open:2f6470612f312d312f66616b652e656c66,1,0", "F-1,1e");
	EXPECT(bed, "vFile:open:zz,0,0", "F-1,16");
	EXPECT(bed, open, "F3");
	while (at < sizeof(bed->elf.bytes)) {
		char packet[64], bytes[20000], *data;
		size_t n = 0, count;

		snprintf(packet, sizeof(packet), "vFile:pread:3,8000,%zx", at);
		put(bed, packet, strlen(packet));
		receive(bed);
		count = strtoul(bed->reply + 1, &data, 16);
		for (data++; n < count; data++)
			bytes[n++] = *data == '}' ? (char)(*++data ^ 0x20) : *data;
		assert_true(count && at + count <= sizeof(bed->elf.bytes));
		assert_memory_equal(bytes, bed->elf.bytes + at, count);
		at += count;
	}
	EXPECT(bed, "vFile:pread:3,10,ffffffffffff", "F00000000;");
	EXPECT(bed, "vFile:pwrite:3,0,aa", "F-1,1e");
	EXPECT(bed, "vFile:unlink:2f", "F-1,1e");
	assert_int_equal(strncmp(ask(bed, "vFile:fstat:3"), "F40;", 4), 0);
	EXPECT(bed, "vFile:close:3", "F0");
	EXPECT(bed, "vFile:close:3", "F-1,9");
	hang_up(bed);
}

/* ---- ends ---- */

static void test_detach(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	EXPECT(bed, "D", "OK");
	finish(bed, VB_GDB_DETACHED);
}

static void test_kill_detaches(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	put(bed, "k", 1);
	finish(bed, VB_GDB_DETACHED);
	bed = begin(3);
	bed->target.kill = count_kill;
	start(bed);
	EXPECT(bed, "qAttached", "0");
	EXPECT(bed, "vKill;1", "OK");
	pthread_join(bed->thread, NULL);
	assert_int_equal(bed->kills, 1);
	bed->thread = pthread_self();
	assert_int_equal(bed->end, VB_GDB_DETACHED);
	close(bed->fd);
	close(bed->quit);
	fake_free(&bed->fake);
	free(bed);
}

static void end_session(struct bed *bed, int code)
{
	atomic_store(&bed->exit_code, code);
	assert_int_equal(eventfd_write(bed->quit, 1), 0);
}

static void test_end_of_the_process(void **state)
{
	struct bed *bed = begin(3);

	start(bed);
	EXPECT(bed, "qC", "QCc");
	put(bed, "vCont;c", 7);
	assert_int_equal(get(bed), '+');
	end_session(bed, 3);
	assert_string_equal(receive(bed), "W03");
	finish(bed, VB_GDB_ENDED);
	/* A debugger that has its prompt may have resumed at this moment. */
	bed = begin(3);
	start(bed);
	EXPECT(bed, "QStartNoAckMode", "OK");
	end_session(bed, 0);
	assert_string_equal(receive(bed), "W00");
	finish(bed, VB_GDB_ENDED);
}

/* A debugger that sends and never reads: the session waits, and its end does not wait for it. */
static void test_slow_reader(void **state)
{
	struct bed *bed = begin(3);
	char packet[] = "$m1000,1000#f0";
	struct pollfd room;
	ssize_t sent;

	start(bed);
	room = (struct pollfd){ .fd = bed->fd, .events = POLLOUT };
	do
		sent = send(bed->fd, packet, sizeof(packet) - 1, MSG_DONTWAIT);
	while (sent > 0 || poll(&room, 1, 200) > 0);
	end_session(bed, 0);
	finish(bed, VB_GDB_ENDED);
	bed = begin(3);
	start(bed);
	do
		sent = send(bed->fd, packet, sizeof(packet) - 1, MSG_DONTWAIT);
	while (sent > 0);
	hang_up(bed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damaged_packets_are_asked_for_again),
		cmocka_unit_test(test_without_acks_a_damaged_packet_is_refused),
		cmocka_unit_test(test_too_long_packet_is_refused),
		cmocka_unit_test(test_unknown_packets),
		cmocka_unit_test(test_bad_arguments),
		cmocka_unit_test(test_supported),
		cmocka_unit_test(test_target_description),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_process_without_threads),
		cmocka_unit_test(test_registers),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_one_address_as_two_kinds),
		cmocka_unit_test(test_watchpoints),
		cmocka_unit_test(test_breakpoints_outside_of_the_text),
		cmocka_unit_test(test_breakpoint_at_the_return_address),
		cmocka_unit_test(test_points_have_a_limit),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_signal_of_each_trap),
		cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_detach),
		cmocka_unit_test(test_kill_detaches),
		cmocka_unit_test(test_end_of_the_process),
		cmocka_unit_test(test_slow_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
