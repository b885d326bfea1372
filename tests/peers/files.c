// SPDX-License-Identifier: MIT
/*
 * What a program under `verbatim run` finds in /dev/infiniband, /dev/accel and /sys: every function by which programs look
 * at files, and every value against what verbs say of the same device.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #what); \
			exit(1);                                                       \
		}                                                                      \
	} while (0)

#define CHECK_FAILS(what, why)         \
	do {                           \
		errno = 0;             \
		CHECK(what);           \
		CHECK(errno == (why)); \
	} while (0)

#define CLASS "/sys/class/infiniband"
#define PCI   "/sys/bus/pci/devices"
#define GUID  CLASS "/mlx5_0/node_guid"
#define NODE  "/dev/infiniband/uverbs0"

/* --- values ------------------------------------------------------------------------------------------------------- */

/* The text of a file without its last newline; NULL where there is no such file. One answer at a time. */
static const char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *text_of(const char *format, ...)
{
	static char text[4096];
	char path[512];
	va_list args;
	ssize_t len;
	int fd;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return NULL;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	CHECK(len > 0 && text[len - 1] == '\n');
	text[len - 1] = 0;
	return text;
}

#define CHECK_TEXT(expected, ...)                                                            \
	do {                                                                                 \
		const char *text_ = text_of(__VA_ARGS__);                                    \
                                                                                             \
		if (!text_ || strcmp(text_, expected)) {                                     \
			fprintf(stderr, "%s:%d: '%s' instead of '%s'\n", __FILE__, __LINE__, \
				text_ ? text_ : "(no file)", expected);                      \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

static void check_close(int fd)
{
	CHECK(fd >= 0 && !close(fd));
}

static const char *groups(const void *data, unsigned int len)
{
	const uint8_t *raw = data;
	static char text[64];

	for (unsigned int i = 0, at = 0; i < len; i += 2)
		at += (unsigned int)sprintf(text + at, "%s%02x%02x", i ? ":" : "", raw[i],
					    raw[i + 1]);
	return text;
}

static void check_gid(struct ibv_context *context, const char *port_dir, uint8_t port, int index)
{
	struct ibv_gid_entry entry;
	char interface[IF_NAMESIZE];
	union ibv_gid gid;

	CHECK(!ibv_query_gid(context, port, index, &gid));
	CHECK_TEXT(groups(&gid, sizeof(gid)), "%s/gids/%d", port_dir, index);
	if (ibv_query_gid_ex(context, port, (uint32_t)index, &entry, 0)) {
		CHECK(!text_of("%s/gid_attrs/types/%d", port_dir, index));
		return;
	}
	CHECK_TEXT(entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1",
		   "%s/gid_attrs/types/%d", port_dir, index);
	if (entry.ndev_ifindex && if_indextoname(entry.ndev_ifindex, interface))
		CHECK_TEXT(interface, "%s/gid_attrs/ndevs/%d", port_dir, index);
}

static void check_port(struct ibv_context *context, uint8_t port)
{
	struct ibv_port_attr attr;
	char dir[256], text[64];

	CHECK(!ibv_query_port(context, port, &attr));
	snprintf(dir, sizeof(dir), CLASS "/%s/ports/%u", context->device->name, port);
	snprintf(text, sizeof(text), "%d: %s", attr.state,
		 attr.state == IBV_PORT_ACTIVE ? "ACTIVE" : "DOWN");
	CHECK_TEXT(text, "%s/state", dir);
	snprintf(text, sizeof(text), "%d: %s", attr.phys_state,
		 attr.phys_state == 5 ? "LinkUp" : "Disabled");
	CHECK_TEXT(text, "%s/phys_state", dir);
	CHECK(attr.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK_TEXT("Ethernet", "%s/link_layer", dir);
	CHECK(attr.active_width == 2 && attr.active_speed == 64);
	CHECK_TEXT("200 Gb/sec (4X HDR)", "%s/rate", dir);
	CHECK_TEXT("0x0", "%s/lid", dir);
	CHECK_TEXT("0xffff", "%s/pkeys/0", dir);
	snprintf(text, sizeof(text), "0x%08x", attr.port_cap_flags);
	CHECK_TEXT(text, "%s/cap_mask", dir);
	for (int i = 0; i < attr.gid_tbl_len; i++)
		check_gid(context, dir, port, i);
	CHECK(!text_of("%s/gids/%d", dir, attr.gid_tbl_len));
}

static void check_device(struct ibv_device *device, unsigned int index)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr;
	char text[64], path[512], *real;
	struct stat st;
	__be64 guid;

	CHECK(context);
	CHECK(!ibv_query_device(context, &attr));
	CHECK_TEXT(attr.fw_ver, "%s/fw_ver", device->ibdev_path);
	guid = ibv_get_device_guid(device);
	CHECK_TEXT(groups(&guid, sizeof(guid)), "%s/node_guid", device->ibdev_path);
	CHECK_TEXT(groups(&attr.sys_image_guid, 8), "%s/sys_image_guid", device->ibdev_path);
	CHECK_TEXT("1: CA", "%s/node_type", device->ibdev_path);
	snprintf(text, sizeof(text), "%x", attr.hw_ver);
	CHECK_TEXT(text, "%s/hw_rev", device->ibdev_path);
	CHECK(*text_of("%s/hca_type", device->ibdev_path) &&
	      *text_of("%s/board_id", device->ibdev_path));
	snprintf(text, sizeof(text), "0x%04x", attr.vendor_part_id);
	CHECK_TEXT(text, "%s/device/device", device->ibdev_path);
	CHECK_TEXT(strncmp(device->name, "hbl", 3) ? "0x15b3" : "0x1da3", "%s/device/vendor",
		   device->ibdev_path);
	CHECK(strtol(text_of("%s/device/numa_node", device->ibdev_path), NULL, 10) >= -1);
	CHECK(strtoul(text_of("%s/device/local_cpus", device->ibdev_path), NULL, 16) & 3);
	for (uint8_t port = 1; port <= attr.phys_port_cnt; port++)
		check_port(context, port);
	CHECK(!text_of("%s/ports/%u/state", device->ibdev_path, attr.phys_port_cnt + 1u));

	/* The character device, and how programs find one from the other. */
	snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
	CHECK(!stat(path, &st) && S_ISCHR(st.st_mode) && (st.st_mode & 0777) == 0666);
	CHECK(major(st.st_rdev) == 231 && minor(st.st_rdev) == 192 + index);
	snprintf(text, sizeof(text), "231:%u", 192 + index);
	CHECK_TEXT(text, "%s/dev", device->dev_path);
	CHECK_TEXT(device->name, "%s/ibdev", device->dev_path);
	snprintf(path, sizeof(path), "%s/device/infiniband_verbs/%s/ibdev", device->ibdev_path,
		 device->dev_name);
	CHECK_TEXT(device->name, "%s", path);

	/* Two levels above the real name is the PCI device: UCX looks there. */
	real = realpath(device->ibdev_path, NULL);
	snprintf(path, sizeof(path), "/infiniband/%s", device->name);
	CHECK(real && !strncmp(real, "/sys/devices/pci", 16) && strstr(real, path));
	*strstr(real, path) = 0;
	snprintf(text, sizeof(text), "0x%04x", attr.vendor_part_id);
	CHECK_TEXT(text, "%s/device", real);
	free(real);
	ibv_close_device(context);
}

static void check_values(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	CHECK(list && count > 1);
	CHECK_TEXT("6", "/sys/class/infiniband_verbs/abi_version");
	for (int i = 0; i < count; i++)
		check_device(list[i], (unsigned int)i);
	ibv_free_device_list(list);
}

/* --- PCI devices -------------------------------------------------------------------------------------------------- */

/* As DPDK and libpciaccess read a PCI device: each file by the name that the listing has. */
static void check_pci_device(struct ibv_device *device, const char *address)
{
	bool accel = !strncmp(device->name, "hbl", 3);
	unsigned int vendor, id;
	char path[512], text[512], *base;
	unsigned long from, to, flags;
	ssize_t len;
	FILE *file;

	vendor = (unsigned int)strtoul(text_of(PCI "/%s/vendor", address), NULL, 16);
	id = (unsigned int)strtoul(text_of(PCI "/%s/device", address), NULL, 16);
	CHECK_TEXT(accel ? "0x120000" : "0x020000", PCI "/%s/class", address);
	CHECK_TEXT("0", PCI "/%s/sriov_numvfs", address);
	CHECK_TEXT("0", PCI "/%s/sriov_totalvfs", address);
	CHECK(text_of(PCI "/%s/subsystem_vendor", address) &&
	      text_of(PCI "/%s/subsystem_device", address) &&
	      text_of(PCI "/%s/numa_node", address));
	snprintf(text, sizeof(text), "pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc00i00", vendor, id, vendor,
		 id, accel ? 0x12 : 2);
	CHECK_TEXT(text, PCI "/%s/modalias", address);

	snprintf(path, sizeof(path), PCI "/%s/driver", address);
	len = readlink(path, text, sizeof(text) - 1);
	CHECK(len > 0);
	text[len] = 0;
	base = strrchr(text, '/');
	CHECK(base && !access(path, F_OK)); /* a link that leads somewhere */
	snprintf(path, sizeof(path), "/sys/bus/pci/drivers%s/%s/vendor", base, address);
	CHECK(!access(path, R_OK));
	snprintf(path, sizeof(path),
		 "DRIVER=%s\nPCI_CLASS=%s\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\n"
		 "PCI_SLOT_NAME=%s\n",
		 base + 1, accel ? "120000" : "20000", vendor, id, vendor, id, address);
	CHECK(!strncmp(text_of(CLASS "/%s/device/uevent", device->name), path, strlen(path)));
	snprintf(path, sizeof(path), PCI "/%s/subsystem", address);
	CHECK(realpath(path, text) && !strcmp(text, "/sys/bus/pci"));

	snprintf(path, sizeof(path), PCI "/%s/resource", address);
	file = fopen(path, "r");
	CHECK(file);
	for (int i = 0; i < 7; i++) {
		CHECK(fgets(text, sizeof(text), file));
		CHECK(sscanf(text, "0x%lx 0x%lx 0x%lx", &from, &to, &flags) == 3);
	}
	fclose(file);
	snprintf(path, sizeof(path), PCI "/%s/infiniband/%s/node_type", address, device->name);
	CHECK(!access(path, R_OK));
}

struct address {
	char text[32];
};

/* Names of a directory as the kernel has them: without the functions that the preload stands before. */
static int real_names(const char *path, struct address *names, int max)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY), count = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (*entry->d_name != '.' && count < max)
			snprintf(names[count++].text, 32, "%.31s", entry->d_name);
	if (dir)
		closedir(dir);
	return count;
}

/* The machine's own devices are there as before, whichever way a program goes. */
static void check_pci_machine(int adapters)
{
	static struct address names[1024];
	int count = real_names(PCI, names, 1024), all = 0, dir = open(PCI, O_RDONLY | O_DIRECTORY);
	char path[512], text[PATH_MAX], raw[PATH_MAX];
	struct dirent *entry;
	glob_t found;
	DIR *list = opendir(PCI);

	CHECK(list && dir >= 0);
	while ((entry = readdir(list)))
		all += *entry->d_name != '.';
	closedir(list);
	CHECK(all == count + adapters);
	CHECK(!glob(PCI "/*/vendor", 0, NULL, &found) && found.gl_pathc == (size_t)all);
	for (size_t i = 0; i < found.gl_pathc; i++)
		CHECK(!strncmp(found.gl_pathv[i], PCI "/", strlen(PCI "/")));
	globfree(&found);
	for (int i = 0; i < count; i++) {
		ssize_t len;

		snprintf(path, sizeof(path), PCI "/%.31s", names[i].text);
		len = readlink(path, text, sizeof(text));
		CHECK(len > 0);
		CHECK(syscall(SYS_readlinkat, AT_FDCWD, path, raw, sizeof(raw)) == len);
		CHECK(!memcmp(text, raw, (size_t)len));
		CHECK(realpath(path, text) && !strncmp(text, "/sys/devices/", 13));
		snprintf(path, sizeof(path), "%.31s/vendor", names[i].text);
		check_close(openat(dir, path, O_RDONLY));
		CHECK(!faccessat(dir, names[i].text, F_OK, 0));
	}
	close(dir);
}

static void check_pci(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	char path[512], *real;

	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/device", list[i]->ibdev_path);
		real = realpath(path, NULL);
		CHECK(real);
		check_pci_device(list[i], strrchr(real, '/') + 1);
		free(real);
	}
	check_pci_machine(count);
	CHECK_FAILS(access(PCI "/5642:00:1f.7", F_OK), ENOENT);
	CHECK_FAILS(access(PCI "/ffff:00:1f.7", F_OK), ENOENT);
	CHECK(access(PCI "/../drivers", F_OK) == access("/sys/bus/pci/drivers", F_OK));
	ibv_free_device_list(list);
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

static void check_read(int fd)
{
	char text[64] = "";

	CHECK(fd >= 0 && read(fd, text, sizeof(text)) == 20 && text[4] == ':' && text[19] == '\n');
	CHECK(!close(fd));
}

static void check_open(void)
{
	int (*open_2)(const char *, int) =
		(int (*)(const char *, int))dlsym(RTLD_DEFAULT, "__open_2");
	int root = open("/", O_RDONLY | O_DIRECTORY), class = open(CLASS, O_RDONLY | O_DIRECTORY);
	FILE *file;

	CHECK(root >= 0 && class >= 0 && open_2);
	check_read(open(GUID, O_RDONLY));
	check_read(open64(GUID, O_RDONLY | O_CLOEXEC));
	check_read(open("//sys/./class//infiniband/mlx5_0/node_guid", O_RDONLY));
	check_read(open(CLASS "/mlx5_0/ports/../node_guid", O_RDONLY));
	check_read(openat(AT_FDCWD, GUID, O_RDONLY));
	check_read(openat64(-1, GUID, O_RDONLY));
	check_read(openat(root, "sys/class/infiniband/mlx5_0/node_guid", O_RDONLY));
	check_read(openat(class, "mlx5_0/node_guid", O_RDONLY));
	check_read(open_2(GUID, O_RDONLY));
	file = fopen(GUID, "re");
	CHECK(file);
	check_read(dup(fileno(file)));
	fclose(file);
	file = fopen64(GUID, "r");
	CHECK(file && !fclose(file));
	close(root);
	close(class);

	CHECK_FAILS(open(CLASS "/none/node_guid", O_RDONLY) < 0, ENOENT);
	CHECK_FAILS(open(GUID "/below", O_RDONLY) < 0, ENOTDIR);
	CHECK_FAILS(open(GUID, O_WRONLY) < 0, EACCES);
	CHECK_FAILS(open(GUID, O_RDWR | O_TRUNC) < 0, EACCES);
	CHECK_FAILS(open(CLASS "/new", O_WRONLY | O_CREAT, 0600) < 0, EACCES);
	CHECK_FAILS(open(CLASS "/none/new", O_WRONLY) < 0, ENOENT);
	CHECK_FAILS(open(CLASS, O_RDWR) < 0, EISDIR);
	CHECK_FAILS(!fopen(GUID, "w"), EACCES);
	CHECK_FAILS(!fopen(GUID, "r+"), EACCES);
	CHECK_FAILS(!fopen(CLASS "/none", "r"), ENOENT);
	CHECK_FAILS(openat(class, "mlx5_0", O_RDONLY) < 0, EBADF);
}

static void check_node(void)
{
	int fd = open(NODE, O_RDWR), dir = open("/dev/infiniband", O_RDONLY | O_DIRECTORY);
	struct stat st, same;
	char byte = 0;

	CHECK(fd >= 0 && dir >= 0);
	CHECK(!fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(231, 192));
	CHECK(!fstatat(dir, "uverbs0", &same, 0) && same.st_rdev == st.st_rdev &&
	      S_ISCHR(same.st_mode));
	CHECK(!fstatat(fd, "", &same, AT_EMPTY_PATH) && same.st_rdev == st.st_rdev);
	CHECK(read(fd, &byte, 1) == 0 && write(fd, &byte, 1) < 0);
	close(fd);
	fd = openat(dir, "uverbs0", O_RDWR);
	CHECK(fd >= 0 && write(fd, &byte, 1) < 0 && !fstat(fd, &same) &&
	      same.st_rdev == st.st_rdev);
	close(fd);
	close(dir);
	CHECK(!access(NODE, R_OK | W_OK));
	CHECK_FAILS(open("/dev/infiniband/uverbs99", O_RDWR) < 0, ENOENT);
	CHECK(!stat("/dev/accel/accel0", &st) && S_ISCHR(st.st_mode) &&
	      st.st_rdev == makedev(261, 0));
	fd = openat(open("/dev/accel", O_RDONLY), "accel0", O_RDWR);
	CHECK(fd >= 0);
	CHECK_FAILS(open("/dev/accel/accel0", O_RDWR) < 0, EBUSY);
	close(fd);
}

static void check_stat(void)
{
	int (*xstat)(int, const char *, struct stat *) =
		(int (*)(int, const char *, struct stat *))dlsym(RTLD_DEFAULT, "__xstat");
	struct stat64 st64;
	struct statx stx;
	struct stat st;
	int fd;

	errno = 123;
	CHECK(!stat(GUID, &st) && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0444 && st.st_size);
	CHECK(!stat64(GUID, &st64) && st64.st_ino == st.st_ino);
	CHECK(!lstat(CLASS "/mlx5_0", &st) && S_ISLNK(st.st_mode));
	CHECK(!lstat64(CLASS "/mlx5_0", &st64) && S_ISLNK(st64.st_mode));
	CHECK(!stat(CLASS "/mlx5_0", &st) && S_ISDIR(st.st_mode));
	CHECK(!fstatat(AT_FDCWD, CLASS "/mlx5_0", &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode));
	CHECK(!fstatat64(AT_FDCWD, NODE, &st64, 0) && S_ISCHR(st64.st_mode));
	CHECK(!statx(AT_FDCWD, NODE, 0, STATX_TYPE, &stx) && S_ISCHR(stx.stx_mode) &&
	      stx.stx_rdev_major == 231 && stx.stx_rdev_minor == 192);
	CHECK(xstat && !xstat(1, NODE, &st) && S_ISCHR(st.st_mode));
	fd = open(GUID, O_RDONLY);
	CHECK(!fstat(fd, &st) && S_ISREG(st.st_mode) && !close(fd));
	CHECK(errno == 123); /* nothing on the way left a trace */
	CHECK_FAILS(stat(CLASS "/none", &st), ENOENT);
	CHECK_FAILS(lstat(GUID "/below", &st), ENOTDIR);
	CHECK_FAILS(statx(AT_FDCWD, "/dev/infiniband/none", 0, STATX_TYPE, &stx), ENOENT);
	CHECK(!access(GUID, R_OK) && !faccessat(AT_FDCWD, GUID, F_OK, 0) &&
	      !euidaccess(GUID, R_OK));
	CHECK_FAILS(access(CLASS "/none", F_OK), ENOENT);
	CHECK_FAILS(access(NODE, X_OK), EACCES);
	CHECK_FAILS(access(GUID, W_OK), EACCES);
	CHECK_FAILS(faccessat(AT_FDCWD, GUID, R_OK | W_OK, 0), EACCES);
	CHECK_FAILS(access(CLASS "/none", W_OK), ENOENT);
}

static void check_names(void)
{
	char text[PATH_MAX], *name;
	ssize_t len;

	len = readlink(CLASS "/mlx5_0", text, sizeof(text));
	CHECK(len > 0 && !strncmp(text, "../../devices/pci", 17));
	CHECK(readlinkat(AT_FDCWD, CLASS "/mlx5_0", text, sizeof(text)) == len);
	CHECK_FAILS(readlink(GUID, text, sizeof(text)) < 0, EINVAL);
	CHECK_FAILS(readlink(CLASS "/none", text, sizeof(text)) < 0, ENOENT);
	CHECK(realpath(CLASS "/mlx5_0/device", text) && !strncmp(text, "/sys/devices/pci", 16));
	name = canonicalize_file_name(CLASS "/mlx5_0/device");
	CHECK(name && !strcmp(name, text));
	free(name);
	name = realpath(text, NULL); /* it is a name like any other */
	CHECK(name && !strcmp(name, text));
	free(name);
	CHECK_FAILS(!realpath(CLASS "/none", NULL), ENOENT);
	CHECK(!chdir(CLASS) && getcwd(text, sizeof(text)) && !strcmp(text, CLASS));
	check_read(open("mlx5_0/node_guid", O_RDONLY));
	CHECK(!chdir("/sys/class") && !access("infiniband/mlx5_0", F_OK) && !chdir("/"));
}

/* Counted by name; d_type is that of the file. */
static void check_entries(const char *path, const char *prefix, int type, int expected)
{
	DIR *dir = opendir(path);
	struct dirent **list, *entry;
	int count = 0, found;
	char pattern[256];
	glob_t names;

	CHECK(dir);
	while ((entry = readdir(dir))) {
		CHECK(*entry->d_name == '.' || entry->d_type == type ||
		      strncmp(entry->d_name, prefix, strlen(prefix)));
		count += !strncmp(entry->d_name, prefix, strlen(prefix));
	}
	closedir(dir);
	CHECK(count == expected);
	found = scandir(path, &list, NULL, alphasort);
	CHECK(found >= expected + 2);
	while (found--)
		free(list[found]);
	free(list);
	snprintf(pattern, sizeof(pattern), "%s/%s*", path, prefix);
	CHECK(!glob(pattern, 0, NULL, &names) && names.gl_pathc == (size_t)expected);
	CHECK(!strncmp(names.gl_pathv[0], path, strlen(path)));
	globfree(&names);
}

static void check_directories(void)
{
	int count, accels = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	for (int i = 0; i < count; i++)
		accels += !strncmp(list[i]->name, "hbl", 3);
	ibv_free_device_list(list);
	check_entries("/dev/infiniband", "uverbs", DT_CHR, count);
	check_entries("/dev/accel", "accel", DT_CHR, accels);
	check_entries(CLASS, "mlx", DT_LNK, count - accels);
	check_entries("/sys/class/infiniband_verbs", "uverbs", DT_LNK, count);
	CHECK_FAILS(!opendir(CLASS "/none"), ENOENT);
	CHECK_FAILS(!opendir(GUID), ENOTDIR);
}

static void check_others(void)
{
	struct stat st;

	CHECK(!stat("/dev/null", &st) && st.st_rdev == makedev(1, 3));
	CHECK_FAILS(stat("/dev/infinibandx", &st), ENOENT);
	CHECK_FAILS(stat("/sys/class/infiniband_none", &st), ENOENT);
	CHECK_FAILS(stat("", &st), ENOENT);
	CHECK_FAILS(open("", O_RDONLY) < 0, ENOENT);
	/* The answer does not hang on the environment, which a program may clear; its children then are on their own. */
	CHECK(!system("test -c " NODE " && exec sh -c 'test -c " NODE "'"));
	CHECK(!clearenv() && !stat(NODE, &st) && S_ISCHR(st.st_mode));
	CHECK(system("test -c " NODE));
}

/* With an argument: only values, where the configuration says what type of card the first one is. */
int main(int argc, char **argv)
{
	check_values();
	if (argc > 1) {
		CHECK_TEXT(argv[1], CLASS "/mlx5_0/hca_type");
		printf("%s agrees\n", argv[1]);
		return 0;
	}
	check_pci();
	check_open();
	check_node();
	check_stat();
	check_names();
	check_directories();
	check_others();
	puts("all files are there");
	return 0;
}
