// SPDX-License-Identifier: GPL-2.0
/*
 * The configuration text: what the loader made of the scenario and the tables.
 *
 *   driver VERSION
 *   gpu BDF FRAMEWORK DEVICE SUBSYSTEM TOTALVFS NUMA     (ids hexadecimal)
 *   fact KEY VALUE                                      (for the NVML library)
 *   type ID FB_MIB MAX DEVICE SUBSYSTEM HEADS FRL RESOLUTION GI_PROFILE
 *        PLACE_SIZE PLACES MORE NAME                    (one line)
 *
 * "fact" and "type" belong to the "gpu" above them.
 */
#include <linux/kernel_read_file.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "vgpu_lab.h"

LIST_HEAD(lab_gpus);
char lab_driver_version[32] = "unknown";

static const char *const framework_names[] = { "mdev_pf", "mdev_vf", "vendor_vfio" };

static int append(char **text, size_t *len, const char *line)
{
	size_t more = strlen(line);
	char *grown = krealloc(*text, *len + more + 2, GFP_KERNEL);

	if (!grown)
		return -ENOMEM;
	memcpy(grown + *len, line, more);
	grown[*len + more] = '\n';
	grown[*len + more + 1] = 0;
	*text = grown;
	*len += more + 1;
	return 0;
}

static int parse_places(struct lab_type *type, char *list)
{
	char *word;
	unsigned int id;

	while ((word = strsep(&list, ",")) != NULL) {
		if (!strcmp(word, "-"))
			continue;
		if (kstrtouint(word, 10, &id) || id >= LAB_MAX_PLACES)
			return -EINVAL;
		set_bit(id, type->places);
	}
	return 0;
}

static int parse_type(struct lab_gpu *gpu, const char *line)
{
	struct lab_type *grown, *type;
	unsigned int device, subsystem;
	char places[1024];
	int name = 0, ret;

	grown = krealloc_array(gpu->types, gpu->nr_types + 1, sizeof(*type), GFP_KERNEL);
	if (!grown)
		return -ENOMEM;
	gpu->types = grown;
	type = memset(&grown[gpu->nr_types], 0, sizeof(*type));
	if (sscanf(line, "%u %u %u %x %x %u %u %15s %d %u %1023s %*s %n", &type->id, &type->fb_mib,
		   &type->max, &device, &subsystem, &type->heads, &type->frl, type->resolution,
		   &type->gi_profile, &type->place_size, places, &name) != 11 || !name)
		return -EINVAL;
	type->device = device;
	type->subsystem = subsystem;
	strscpy(type->name, line + name, sizeof(type->name));
	snprintf(type->sysfs_id, sizeof(type->sysfs_id), "%u", type->id);
	ret = parse_places(type, places);
	if (ret)
		return ret;
	gpu->nr_types++;
	return append(&gpu->types_text, &gpu->types_len, line);
}

static struct lab_gpu *parse_gpu(const char *line, int index)
{
	struct lab_gpu *gpu = kzalloc(sizeof(*gpu), GFP_KERNEL);
	unsigned int device, subsystem, vfs;
	char framework[16];
	int ret;

	if (!gpu)
		return ERR_PTR(-ENOMEM);
	mutex_init(&gpu->lock);
	INIT_LIST_HEAD(&gpu->vgpus);
	init_waitqueue_head(&gpu->released);
	gpu->index = index;
	if (sscanf(line, "%15s %15s %x %x %u %d", gpu->bdf, framework, &device, &subsystem,
		   &vfs, &gpu->numa) != 6) {
		kfree(gpu);
		return ERR_PTR(-EINVAL);
	}
	ret = match_string(framework_names, ARRAY_SIZE(framework_names), framework);
	if (ret < 0) {
		kfree(gpu);
		return ERR_PTR(ret);
	}
	gpu->framework = ret;
	gpu->device = device;
	gpu->subsystem = subsystem;
	gpu->totalvfs = vfs;
	list_add_tail(&gpu->node, &lab_gpus);
	return gpu;
}

static int parse_line(char *line, struct lab_gpu **gpu, int *count)
{
	char *rest = line, *word = strsep(&rest, " ");

	if (!*word || *word == '#')
		return 0;
	if (!rest)
		return -EINVAL;
	if (!strcmp(word, "driver")) {
		strscpy(lab_driver_version, rest, sizeof(lab_driver_version));
		return 0;
	}
	if (!strcmp(word, "gpu")) {
		if (*count == LAB_MAX_GPUS)
			return -E2BIG;
		*gpu = parse_gpu(rest, (*count)++);
		return PTR_ERR_OR_ZERO(*gpu);
	}
	if (!*gpu)
		return -EINVAL;
	if (!strcmp(word, "fact"))
		return append(&(*gpu)->facts, &(*gpu)->facts_len, rest);
	if (!strcmp(word, "type"))
		return parse_type(*gpu, rest);
	return -EINVAL;
}

int lab_config_load(const char *path)
{
	struct lab_gpu *gpu = NULL;
	char *text, *next, *line;
	void *buf = NULL;
	int count = 0, number = 0, ret;
	ssize_t size;

	size = kernel_read_file_from_path(path, 0, &buf, SZ_1M, NULL, READING_FIRMWARE);
	if (size < 0)
		return size;
	text = kmemdup_nul(buf, size, GFP_KERNEL);
	vfree(buf);
	if (!text)
		return -ENOMEM;
	for (next = text, ret = 0; !ret && (line = strsep(&next, "\n")) != NULL; number++)
		ret = parse_line(line, &gpu, &count);
	if (ret)
		pr_err("vgpu_lab: %s:%d: bad line (%d)\n", path, number, ret);
	kfree(text);
	return ret;
}

void lab_config_free(void)
{
	struct lab_gpu *gpu, *next;

	list_for_each_entry_safe(gpu, next, &lab_gpus, node) {
		list_del(&gpu->node);
		kfree(gpu->types);
		kfree(gpu->facts);
		kfree(gpu->types_text);
		kfree(gpu);
	}
}
