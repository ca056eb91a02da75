// SPDX-License-Identifier: Apache-2.0
/* Reads the module's files. VGPU_LAB_ROOT is put before /sys, /dev and /proc, so that a directory can stand in. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "lab.h"

#define CONFIG_SIZE (1 << 20)

struct gpu gpus[MAX_GPUS];
uint nr_gpus;
static int clients;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static char driver[64];

static int open_file(const char *path, int flags)
{
	const char *root = getenv("VGPU_LAB_ROOT");
	char full[512];

	snprintf(full, sizeof(full), "%s%s", root ? root : "", path);
	return open(full, flags | O_CLOEXEC);
}

/* The file's bytes, NUL-terminated; 0 when there is no such file. */
size_t source_read(const char *path, char *buf, size_t size)
{
	int fd = open_file(path, O_RDONLY);
	size_t len = 0;
	ssize_t got;

	buf[0] = 0;
	if (fd < 0)
		return 0;
	while (len < size - 1 && (got = read(fd, buf + len, size - 1 - len)) > 0)
		len += got;
	close(fd);
	buf[len] = 0;
	return len;
}

static size_t read_gpu_file(const struct gpu *gpu, const char *file, char *buf, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/kernel/vgpu_lab/gpus/%s/%s", gpu->dir, file);
	return source_read(path, buf, size);
}

static nvmlReturn_t meaning_of(int error)
{
	switch (error) {
	case EACCES:
	case EPERM:
		return NVML_ERROR_NO_PERMISSION;
	case EBUSY:
		return NVML_ERROR_IN_USE;
	case EINVAL:
		return NVML_ERROR_INVALID_ARGUMENT;
	case ENOENT:
		return NVML_ERROR_NOT_FOUND;
	case ENOSPC:
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	case EOPNOTSUPP:
		return NVML_ERROR_NOT_SUPPORTED;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

nvmlReturn_t source_write(const struct gpu *gpu, const char *file, const char *text)
{
	return source_command(gpu, file, text, NULL, NULL, 0);
}

/* Writes to a file and reads what another says after it, while no other client writes. */
nvmlReturn_t source_command(const struct gpu *gpu, const char *file, const char *text, const char *answer, char *buf,
			    size_t size)
{
	char path[128];
	ssize_t done;
	int fd, error;

	snprintf(path, sizeof(path), "/sys/kernel/vgpu_lab/gpus/%s/%s", gpu->dir, file);
	fd = open_file(path, O_WRONLY);
	if (fd < 0)
		return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_UNKNOWN;
	flock(fd, LOCK_EX);
	done = write(fd, text, strlen(text));
	error = errno;
	if (done >= 0 && answer)
		read_gpu_file(gpu, answer, buf, size);
	close(fd);
	return done >= 0 ? NVML_SUCCESS : meaning_of(error);
}

/* The value of a "KEY VALUE" line. */
static bool find_value(const char *text, const char *key, char *out, size_t size)
{
	size_t len = strlen(key);

	for (; text && *text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL)
		if (!strncmp(text, key, len) && text[len] == ' ') {
			snprintf(out, size, "%.*s", (int)strcspn(text + len + 1, "\n"), text + len + 1);
			return true;
		}
	return false;
}

bool source_text(const struct gpu *gpu, const char *key, char *out, size_t size)
{
	char text[4096];

	return (read_gpu_file(gpu, "state", text, sizeof(text)) && find_value(text, key, out, size)) ||
	       find_value(gpu->facts, key, out, size);
}

bool source_number(const struct gpu *gpu, const char *key, long long *out)
{
	char text[64];

	if (!source_text(gpu, key, text, sizeof(text)))
		return false;
	*out = strtoll(text, NULL, 10);
	return true;
}

long long source_number_or(const struct gpu *gpu, const char *key, long long fallback)
{
	long long value;

	return source_number(gpu, key, &value) ? value : fallback;
}

static uint option(const char *options, const char *key)
{
	const char *found = strstr(options, key);

	return found ? strtoul(found + strlen(key), NULL, 10) : 0;
}

static void option_text(const char *options, const char *key, char *out, size_t size)
{
	const char *found = strstr(options, key);

	out[0] = 0;
	if (found)
		snprintf(out, size, "%.*s", (int)strcspn(found + strlen(key), ","), found + strlen(key));
}

static bool parse_type(const char *line, struct vgpu_type *type)
{
	char places[1024], options[512];
	char *word, *rest = places;
	int name = 0;

	if (sscanf(line, "%u %llu %u %x %x %u %u %ux%u %d %u %u %1023s %511s %n", &type->id, &type->fb_mib, &type->max,
		   &type->device, &type->subsystem, &type->heads, &type->frl, &type->width, &type->height,
		   &type->gi_profile, &type->per_gi, &type->place_size, places, options, &name) != 14)
		return false;
	snprintf(type->name, sizeof(type->name), "%.*s", (int)strcspn(line + name, "\n"), line + name);
	type->guest_fb_mib = option(options, "guest_fb=");
	type->per_vm = option(options, "per_vm=");
	type->bar1_mib = option(options, "bar1=");
	type->reserved_mib = option(options, "reserved=");
	type->gsp_heap_mib = option(options, "gsp_heap=");
	option_text(options, "series=", type->series, sizeof(type->series));
	option_text(options, "license=", type->license, sizeof(type->license));
	while (type->nr_places < MAX_PLACES && (word = strsep(&rest, ",")))
		if (*word != '-')
			type->places[type->nr_places++] = strtoul(word, NULL, 10);
	return true;
}

static bool parse_profile(const char *line, struct mig_profile *profile)
{
	char starts[64], *word, *rest = starts;

	if (sscanf(line, "%u %u %u %u %u %63s %u %u %u %u %u %u %u %u %23s", &profile->id, &profile->slices,
		   &profile->size, &profile->total, &profile->max, starts, &profile->number, &profile->memory_mib,
		   &profile->sms, &profile->copy_engines, &profile->decoders, &profile->encoders, &profile->jpegs,
		   &profile->ofas, profile->name) != 15)
		return false;
	while (profile->nr_starts < MAX_STARTS && (word = strsep(&rest, ",")))
		profile->starts[profile->nr_starts++] = strtoul(word, NULL, 10);
	return true;
}

/* "gpu BDF FRAMEWORK DEVICE SUBSYSTEM ..." */
static void parse_gpu(const char *line, uint number, struct gpu *gpu)
{
	char framework[16] = "";

	memset(gpu, 0, sizeof(*gpu));
	snprintf(gpu->dir, sizeof(gpu->dir), "%u", number);
	sscanf(line, "%15s %15s %x %x", gpu->bdf, framework, &gpu->device, &gpu->subsystem);
	gpu->vfs = strcmp(framework, "mdev_pf") != 0;
	gpu->vendor_vfio = !strcmp(framework, "vendor_vfio");
}

static void finish_gpu(struct gpu *gpu)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/nvidia%s", gpu->dir);
	gpu->file = open_file(path, O_RDWR);
	find_value(gpu->facts, "name", gpu->name, sizeof(gpu->name));
	find_value(gpu->facts, "uuid", gpu->uuid, sizeof(gpu->uuid));
	find_value(gpu->facts, "serial", gpu->serial, sizeof(gpu->serial));
}

/* Takes the GPUs that the driver is bound to out of the text that the module was loaded with. */
static void parse_config(char *text)
{
	struct gpu *gpu = NULL;
	uint number = 0;
	char *line;

	while ((line = strsep(&text, "\n"))) {
		if (!strncmp(line, "driver ", 7))
			snprintf(driver, sizeof(driver), "%s", line + 7);
		if (!strncmp(line, "gpu ", 4) && number < MAX_GPUS) {
			gpu = &gpus[nr_gpus];
			parse_gpu(line + 4, number++, gpu);
			gpu->index = nr_gpus;
			gpu->bound = source_number_or(gpu, "bound", 0);
			nr_gpus += gpu->bound;
		}
		if (gpu && !strncmp(line, "type ", 5) && gpu->nr_types < MAX_TYPES)
			gpu->nr_types += parse_type(line + 5, &gpu->types[gpu->nr_types]);
		if (gpu && !strncmp(line, "profile ", 8) && gpu->nr_profiles < MAX_PROFILES)
			gpu->nr_profiles += parse_profile(line + 8, &gpu->profiles[gpu->nr_profiles]);
		if (gpu && !strncmp(line, "mig ", 4))
			gpu->mig_reset = strtoul(line + 6, NULL, 10);
		if (gpu && !strncmp(line, "fact ", 5)) {
			strncat(gpu->facts, line + 5, sizeof(gpu->facts) - strlen(gpu->facts) - 2);
			strcat(gpu->facts, "\n");
		}
	}
	for (gpu = gpus; gpu < gpus + nr_gpus; gpu++)
		finish_gpu(gpu);
}

const char *source_driver(void)
{
	return driver;
}

static nvmlReturn_t first_open(void)
{
	char *text = malloc(CONFIG_SIZE);

	if (!text || !source_read("/sys/kernel/vgpu_lab/config", text, CONFIG_SIZE)) {
		free(text);
		return NVML_ERROR_DRIVER_NOT_LOADED;
	}
	nr_gpus = 0;
	parse_config(text);
	free(text);
	return NVML_SUCCESS;
}

nvmlReturn_t source_open(void)
{
	nvmlReturn_t result;

	pthread_mutex_lock(&opening);
	result = clients ? NVML_SUCCESS : first_open();
	clients += result == NVML_SUCCESS;
	pthread_mutex_unlock(&opening);
	return result;
}

void source_close(void)
{
	uint i;

	pthread_mutex_lock(&opening);
	clients--;
	for (i = 0; !clients && i < nr_gpus; i++)
		close(gpus[i].file);
	pthread_mutex_unlock(&opening);
}

bool source_is_open(void)
{
	return clients > 0;
}

uint source_vgpus(struct gpu *gpu, struct vgpu *out, uint max)
{
	char text[8192], *line;
	uint count = 0, type, open, i;

	if (!read_gpu_file(gpu, "vgpus", text, sizeof(text)))
		return 0;
	for (line = text; line && *line && count < max; line = strchr(line, '\n')) {
		struct vgpu *vgpu = &out[count];

		line += *line == '\n';
		if (sscanf(line, "%u %u %15s %39s %u %u %d %d", &vgpu->instance, &type, vgpu->device, vgpu->uuid, &open,
			   &vgpu->placement, &vgpu->pid, &vgpu->gpu_instance) != 8)
			continue;
		vgpu->gpu = gpu;
		vgpu->open = open;
		for (i = 0; i < gpu->nr_types; i++)
			if (gpu->types[i].id == type) {
				vgpu->type = &gpu->types[i];
				count++;
			}
	}
	return count;
}
