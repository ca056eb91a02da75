/* SPDX-License-Identifier: GPL-2.0 */
/* NVIDIA's sysfs and VFIO surfaces on emulated SR-IOV devices: what the files of the module share. */
#ifndef VGPU_LAB_H
#define VGPU_LAB_H

#include <linux/bitmap.h>
#include <linux/cleanup.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/uuid.h>
#include <linux/wait.h>

#define LAB_MAX_PLACES 256
#define LAB_TEXT 1024
#define NV_VENDOR 0x10de
#define NV_CLASS 0x030200
#define NO_PLACEMENT 0xffff

enum lab_framework { LAB_MDEV_PF, LAB_MDEV_VF, LAB_VENDOR_VFIO };
enum lab_fault { FAULT_NONE, FAULT_BUSY, FAULT_IO, FAULT_HANG, FAULT_OPEN };

struct lab_type {
	u32 id, fb_mib, max, device, subsystem, heads, frl;
	int gi_profile;			/* -1: time-sliced */
	u32 place_size;			/* 0: no placement ids */
	DECLARE_BITMAP(places, LAB_MAX_PLACES);
	char resolution[16], name[64], sysfs_id[12];
};

struct lab_gpu {
	struct list_head node;
	struct kobject kobj;
	int index, numa;
	char bdf[16];
	enum lab_framework framework;
	u32 device, subsystem, totalvfs;
	struct lab_type *types;
	unsigned int nr_types;
	struct list_head vgpus;		/* from here on under lab_lock */
	struct pci_dev *pdev;		/* set while our driver is bound */
	bool heterogeneous, lost, unbind_lock;
	enum lab_fault fault;
	unsigned int fault_value;	/* times left, or seconds of a hang */
	unsigned int last_xid;
	wait_queue_head_t released;
	char sensors[LAB_TEXT];
};

struct lab_vgpu {
	struct list_head node;
	struct lab_gpu *gpu;
	const struct lab_type *type;
	struct device *parent;		/* the PF or VF that carries it */
	struct device *owner;		/* the VF or the mdev that is it */
	u32 instance, placement;
	guid_t uuid;
	bool open;
	pid_t pid;			/* of the process that opened it */
	char params[LAB_TEXT];
};

extern struct mutex lab_lock;
extern struct list_head lab_gpus;
extern char lab_driver_version[32], *lab_config;

int lab_config_load(const char *path);
void lab_config_free(void);
struct lab_gpu *lab_gpu_of(struct pci_dev *pdev);

unsigned int lab_available(struct lab_gpu *gpu, const struct lab_type *type);
struct lab_vgpu *lab_vgpu_on(struct lab_gpu *gpu, struct device *parent);
struct lab_vgpu *lab_vgpu_of(struct device *owner);
int lab_vgpu_create(struct lab_gpu *gpu, const struct lab_type *type, struct device *parent,
		    struct device *owner, bool single, const guid_t *uuid);
int lab_vgpu_destroy(struct device *owner);
const struct lab_type *lab_vgpu_open(struct device *owner);
void lab_vgpu_close(struct device *owner);
int lab_vgpu_place(struct lab_vgpu *vgpu, u32 start);

extern const struct attribute_group *lab_nvidia_groups[];
int lab_vendor_probe(struct pci_dev *pdev);
void lab_vendor_remove(struct pci_dev *pdev);
extern struct mdev_driver lab_mdev_driver;
int lab_mdev_probe(struct pci_dev *pdev, struct lab_gpu *gpu);
void lab_mdev_remove(struct pci_dev *pdev);
int lab_state_init(void);
void lab_state_exit(void);
#endif
