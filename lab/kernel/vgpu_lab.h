/* SPDX-License-Identifier: GPL-2.0 */
/* NVIDIA's sysfs and VFIO surfaces on emulated SR-IOV devices: shared types. */
#ifndef VGPU_LAB_H
#define VGPU_LAB_H

#include <linux/bitmap.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/uuid.h>
#include <linux/wait.h>

#define LAB_MAX_GPUS 16
#define LAB_MAX_PLACES 256
#define LAB_TEXT 1024
#define NV_VENDOR 0x10de
#define NV_CLASS 0x030200
#define NO_PLACEMENT 0xffff

enum lab_framework { LAB_MDEV_PF, LAB_MDEV_VF, LAB_VENDOR_VFIO };
enum lab_fault { FAULT_NONE, FAULT_BUSY, FAULT_IO, FAULT_HANG, FAULT_OPEN };

/* One vGPU type of a GPU, as its line of the configuration says. */
struct lab_type {
	u32 id, fb_mib, max, heads, frl;
	u16 device, subsystem;
	int gi_profile;			/* -1: time-sliced */
	u32 place_size;			/* 0: no placement ids */
	DECLARE_BITMAP(places, LAB_MAX_PLACES);
	char resolution[16], name[64], sysfs_id[12];
};

struct lab_gpu {
	struct list_head node;
	struct kobject kobj;
	int index;
	char bdf[16];
	enum lab_framework framework;
	u16 device, subsystem, totalvfs;
	int numa;
	struct lab_type *types;
	unsigned int nr_types;
	char *facts, *types_text;	/* handed to the NVML library as they are */
	size_t facts_len, types_len;
	struct mutex lock;		/* everything below */
	struct list_head vgpus;
	struct pci_dev *pdev;		/* set while our driver is bound */
	bool heterogeneous, lost, unbind_lock;
	enum lab_fault fault;
	unsigned int fault_value;	/* times left, or seconds for a hang */
	unsigned int last_xid;
	wait_queue_head_t released;
	char sensors[LAB_TEXT];
};

struct lab_vgpu {
	struct list_head node;
	struct lab_gpu *gpu;
	const struct lab_type *type;
	struct device *where;		/* the VF, or the parent of the mdev */
	u32 instance;
	u32 placement;
	guid_t uuid;
	bool open;
	pid_t pid;			/* of the process that opened it */
	char params[LAB_TEXT];
};

extern struct list_head lab_gpus;
extern char lab_driver_version[32];
extern atomic_t lab_nvml_clients;

int lab_config_load(const char *path);
void lab_config_free(void);
struct lab_gpu *lab_gpu_of(struct pci_dev *pdev);

bool lab_creatable(struct lab_gpu *gpu, const struct lab_type *type);
unsigned int lab_available(struct lab_gpu *gpu, const struct lab_type *type);
struct lab_vgpu *lab_vgpu_create(struct lab_gpu *gpu, const struct lab_type *type,
				 struct device *where, bool single, const guid_t *uuid);
void lab_vgpu_destroy(struct lab_vgpu *vgpu);
int lab_vgpu_open(struct lab_vgpu *vgpu);
void lab_vgpu_close(struct lab_vgpu *vgpu);
ssize_t lab_params_store(struct lab_vgpu *vgpu, const char *buf, size_t count);
ssize_t lab_placement_show(struct lab_vgpu *vgpu, char *buf);
ssize_t lab_placement_store(struct lab_vgpu *vgpu, const char *buf, size_t count);
int lab_set_heterogeneous(struct lab_gpu *gpu, bool on);

int lab_vendor_probe(struct pci_dev *pdev, struct lab_gpu *gpu);
void lab_vendor_remove(struct pci_dev *pdev);
extern const struct attribute_group *lab_vendor_groups[];

int lab_mdev_init(void);
void lab_mdev_exit(void);
int lab_mdev_probe(struct pci_dev *pdev, struct lab_gpu *gpu, bool single);
void lab_mdev_remove(struct pci_dev *pdev);

int lab_state_init(void);
void lab_state_exit(void);
int lab_gpu_publish(struct lab_gpu *gpu);
#endif
