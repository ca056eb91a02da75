// SPDX-License-Identifier: GPL-2.0
/* /proc/driver/nvidia/capabilities: which device file of nvidia-caps opens what of MIG. */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include "vgpu_lab.h"

/* NVIDIA's numbers: 1 and 2 for the whole driver, then 15 GPU instances of 8 compute instances for every GPU. */
#define MINOR_CONFIG 1
#define MINOR_MONITOR 2
#define MINORS_OF_INSTANCE 9
#define MINORS_OF_GPU (15 * MINORS_OF_INSTANCE)

static struct proc_dir_entry *capabilities;

static int access_show(struct seq_file *seq, void *unused)
{
	unsigned long minor = (unsigned long)pde_data(file_inode(seq->file));

	seq_printf(seq, "DeviceFileMinor: %lu\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor,
		   minor == MINOR_CONFIG ? 0400 : 0444);
	return 0;
}

static bool add_file(const char *name, struct proc_dir_entry *parent, unsigned long minor)
{
	return parent && proc_create_single_data(name, 0444, parent, access_show, (void *)minor);
}

int lab_capabilities_init(struct proc_dir_entry *root)
{
	struct proc_dir_entry *mig;
	struct lab_gpu *gpu;
	char path[16];

	capabilities = proc_mkdir("capabilities", root);
	mig = capabilities ? proc_mkdir("mig", capabilities) : NULL;
	if (!add_file("config", mig, MINOR_CONFIG) || !add_file("monitor", mig, MINOR_MONITOR))
		return -ENOMEM;
	list_for_each_entry(gpu, &lab_gpus, node) {
		snprintf(path, sizeof(path), "gpu%d", gpu->index);
		gpu->proc = proc_mkdir(path, capabilities);
		gpu->proc = gpu->proc ? proc_mkdir("mig", gpu->proc) : NULL;
		if (!gpu->proc)
			return -ENOMEM;
	}
	return 0;
}

/* The directory of a GPU instance, or of one of its compute instances; to be removed with its instance. */
struct proc_dir_entry *lab_capability_add(struct lab_gpu *gpu, const struct lab_gi *gi, u32 compute)
{
	unsigned long minor = MINOR_MONITOR + 1 + gpu->index * MINORS_OF_GPU + gi->id * MINORS_OF_INSTANCE;
	struct proc_dir_entry *directory;
	char name[16];

	if (compute == U32_MAX)
		snprintf(name, sizeof(name), "gi%u", gi->id);
	else
		snprintf(name, sizeof(name), "ci%u", compute);
	directory = proc_mkdir(name, compute == U32_MAX ? gpu->proc : gi->proc);
	add_file("access", directory, compute == U32_MAX ? minor : minor + 1 + compute);
	return directory;
}
