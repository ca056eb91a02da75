// SPDX-License-Identifier: GPL-2.0
/* /dev/nvidiaN: who has one open uses its GPU. NVIDIA's driver counts them, too (kernel-open/nvidia/nv.c). */
#include <linux/device/class.h>
#include <linux/fs.h>
#include <linux/module.h>
#include "vgpu_lab.h"

#define NV_MAJOR 195

static char *mode_of(const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return NULL;
}

static const struct class nodes = { .name = "nvidia", .devnode = mode_of };

/* Nobody opens one that is locked. */
static int gpu_open(struct inode *inode, struct file *file)
{
	struct lab_gpu *gpu;

	guard(mutex)(&lab_lock);
	list_for_each_entry(gpu, &lab_gpus, node)
		if (gpu->index == iminor(inode) && gpu->pdev && !gpu->unbind_lock) {
			gpu->users++;
			file->private_data = gpu;
			return 0;
		}
	return -EIO;
}

static int gpu_close(struct inode *inode, struct file *file)
{
	struct lab_gpu *gpu = file->private_data;

	guard(mutex)(&lab_lock);
	gpu->users--;
	wake_up_all(&gpu->released);
	return 0;
}

static const struct file_operations gpu_file = { .owner = THIS_MODULE, .open = gpu_open, .release = gpu_close };

int lab_device_files_init(void)
{
	int ret = register_chrdev(NV_MAJOR, "nvidia", &gpu_file);
	struct lab_gpu *gpu;

	if (!ret)
		ret = class_register(&nodes);
	list_for_each_entry(gpu, &lab_gpus, node)
		if (!ret)
			ret = PTR_ERR_OR_ZERO(device_create(&nodes, NULL, MKDEV(NV_MAJOR, gpu->index), NULL, "nvidia%d",
							    gpu->index));
	return ret;
}

void lab_device_files_exit(void)
{
	struct lab_gpu *gpu;

	list_for_each_entry(gpu, &lab_gpus, node)
		device_destroy(&nodes, MKDEV(NV_MAJOR, gpu->index));
	class_unregister(&nodes);
	unregister_chrdev(NV_MAJOR, "nvidia");
}
