// SPDX-License-Identifier: GPL-2.0
/*
 * The configuration text: what the loader made of the scenario and the tables. Lines:
 *   driver VERSION
 *   gpu BDF FRAMEWORK DEVICE SUBSYSTEM TOTALVFS NUMA       (ids hexadecimal)
 *   mig MODE RESET                    (the mode at the start; whether a change of it needs a reset)
 *   profile ID SLICES SIZE TOTAL MAX STARTS ...
 *   type ID FB_MIB MAX DEVICE SUBSYSTEM HEADS FRL RESOLUTION GI_PROFILE PER_GI PLACE_SIZE PLACES MORE NAME
 * All but the first belong to the gpu above them; other lines are for the NVML library, which reads the same text.
 */
#include <linux/kernel_read_file.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "vgpu_lab.h"

DEFINE_MUTEX(lab_lock);
LIST_HEAD(lab_gpus);
char lab_driver_version[32] = "unknown", *lab_config;

static const char *const frameworks[] = { "mdev_pf", "mdev_vf", "vendor_vfio" };

static int parse_type(struct lab_gpu *gpu, const char *line)
{
	struct lab_type *type;
	char places[512];
	int name = 0;

	type = krealloc_array(gpu->types, gpu->nr_types + 1, sizeof(*type), GFP_KERNEL);
	if (!type)
		return -ENOMEM;
	gpu->types = type;
	type += gpu->nr_types;
	memset(type, 0, sizeof(*type));
	if (sscanf(line, "type %u %u %u %x %x %u %u %15s %d %u %u %511s %*s %n", &type->id, &type->fb_mib,
		   &type->max, &type->device, &type->subsystem, &type->heads, &type->frl,
		   type->resolution, &type->gi_profile, &type->per_gi, &type->place_size, places, &name) != 12 || !name)
		return -EINVAL;
	snprintf(type->name, sizeof(type->name), "%.*s", (int)strcspn(line + name, "\n"), line + name);
	snprintf(type->sysfs_id, sizeof(type->sysfs_id), "%u", type->id);
	gpu->nr_types++;
	return *places == '-' ? 0 : bitmap_parselist(places, type->places, LAB_MAX_PLACES);
}

static int parse_profile(struct lab_gpu *gpu, const char *line)
{
	struct lab_profile *profile;
	char starts[64];

	profile = krealloc_array(gpu->profiles, gpu->nr_profiles + 1, sizeof(*profile), GFP_KERNEL);
	if (!profile)
		return -ENOMEM;
	gpu->profiles = profile;
	profile += gpu->nr_profiles++;
	memset(profile, 0, sizeof(*profile));
	if (sscanf(line, "profile %u %u %u %u %u %63s", &profile->id, &profile->slices, &profile->size,
		   &profile->total, &profile->max, starts) != 6 || !profile->size)
		return -EINVAL;
	return bitmap_parselist(starts, &profile->starts, BITS_PER_LONG);
}

static int parse_mig(struct lab_gpu *gpu, const char *line)
{
	unsigned int mode, reset;

	if (sscanf(line, "mig %u %u", &mode, &reset) != 2)
		return -EINVAL;
	gpu->mig = gpu->mig_pending = mode;
	gpu->mig_reset = reset;
	return 0;
}

static int parse_gpu(const char *line)
{
	struct lab_gpu *gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	char framework[16];

	if (!gpu)
		return -ENOMEM;
	INIT_LIST_HEAD(&gpu->vgpus);
	INIT_LIST_HEAD(&gpu->instances);
	init_waitqueue_head(&gpu->released);
	gpu->migration = (struct lab_moves){ .size_kib = 1024, .oldest = 0x070001, .newest = 0x120001 };
#ifdef REFUSES_VGPU
	gpu->fault = FAULT_IO;
	gpu->fault_value = UINT_MAX;
#endif
	gpu->index = list_count_nodes(&lab_gpus);
	list_add_tail(&gpu->node, &lab_gpus);
	if (sscanf(line, "gpu %15s %15s %x %x %u %d", gpu->bdf, framework, &gpu->device, &gpu->subsystem,
		   &gpu->totalvfs, &gpu->numa) != 6)
		return -EINVAL;
	gpu->framework = match_string(frameworks, ARRAY_SIZE(frameworks), framework);
	return (int)gpu->framework < 0 ? -EINVAL : 0;
}

static int parse_line(const char *line)
{
	struct lab_gpu *gpu = list_empty(&lab_gpus) ? NULL : list_last_entry(&lab_gpus, struct lab_gpu, node);

	sscanf(line, "driver %31s", lab_driver_version);
	if (!strncmp(line, "gpu ", 4))
		return parse_gpu(line);
	if (!strncmp(line, "type ", 5))
		return gpu ? parse_type(gpu, line) : -EINVAL;
	if (!strncmp(line, "profile ", 8))
		return gpu ? parse_profile(gpu, line) : -EINVAL;
	if (!strncmp(line, "mig ", 4))
		return gpu ? parse_mig(gpu, line) : -EINVAL;
	return 0;
}

int lab_config_load(const char *path)
{
	void *buf = NULL;
	ssize_t size = kernel_read_file_from_path(path, 0, &buf, SZ_1M, NULL, READING_FIRMWARE);
	const char *line;
	int number = 1, ret;

	if (size < 0)
		return size;
	lab_config = kmemdup_nul(buf, size, GFP_KERNEL);
	vfree(buf);
	for (line = lab_config; line && *line; line += *line == '\n', number++) {
		ret = parse_line(line);
		if (ret) {
			pr_err("vgpu_lab: %s:%d: bad line (%d)\n", path, number, ret);
			return ret;
		}
		line = strchrnul(line, '\n');
	}
	return lab_config ? 0 : -ENOMEM;
}

void lab_config_free(void)
{
	struct lab_gpu *gpu, *next;

	list_for_each_entry_safe(gpu, next, &lab_gpus, node) {
		kfree(gpu->types);
		kfree(gpu->profiles);
		kfree(gpu);
	}
	kfree(lab_config);
}
