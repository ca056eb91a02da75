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
#include <linux/vfio.h>
#include <linux/wait.h>

#define LAB_MAX_PLACES 256
#define LAB_TEXT 1024
#define NV_VENDOR 0x10de
#define NV_CLASS 0x030200
#define NO_PLACEMENT 0xffff
#define LAB_REGISTER 0xf8		/* in config space: eight bytes that a guest writes and reads back */
#define LAB_REGISTER_SIZE 8
#define LAB_MAX_VGPUS 64

enum lab_framework { LAB_MDEV_PF, LAB_MDEV_VF, LAB_VENDOR_VFIO };
enum lab_fault {
	FAULT_NONE, FAULT_BUSY, FAULT_IO, FAULT_HANG, FAULT_OPEN, FAULT_INSTANCE,
	FAULT_SAVE, FAULT_PRE_COPY, FAULT_STOP_COPY, FAULT_RESUME, FAULT_LOAD, FAULT_KEEP,
};

struct lab_type {
	u32 id, fb_mib, max, device, subsystem, heads, frl;
	int gi_profile;			/* -1: time-sliced */
	u32 per_gi;			/* of this type on one GPU instance */
	u32 place_size;			/* 0: no placement ids */
	DECLARE_BITMAP(places, LAB_MAX_PLACES);
	char resolution[16], name[64], sysfs_id[12];
};

/* A GPU instance profile: `size` of the GPU's `total` memory slices, at one of `starts`. */
struct lab_profile {
	u32 id, slices, size, total, max;
	unsigned long starts;
};

struct lab_gi {
	struct list_head node, computes;
	const struct lab_profile *profile;
	u32 id, start;
	struct proc_dir_entry *proc;
};

/* As NVML numbers them; slice in nanoseconds. The zeroth policy is nobody's choice: best effort. */
struct lab_scheduler {
	u32 policy, arr, factor, frequency, slice;
};

/* What moves of each vGPU of a GPU, and which versions of it a GPU takes; it sends the newest. */
struct lab_moves {
	u32 size_kib, dirty_kib_s, seed, oldest, newest;
};

struct lab_gpu {
	struct list_head node;
	struct kobject kobj;
	int index, numa;
	char bdf[16];
	enum lab_framework framework;
	u32 device, subsystem, totalvfs;
	struct pci_bus *bus;		/* set by the first binding of our driver */
	unsigned int devfn;
	struct lab_type *types;
	unsigned int nr_types;
	struct lab_profile *profiles;
	unsigned int nr_profiles;
	bool mig_reset;			/* a change of the MIG mode needs a reset */
	struct list_head vgpus;		/* from here on under lab_lock */
	struct pci_dev *pdev;		/* set while our driver is bound */
	bool heterogeneous, lost, held, persistence, unbind_lock, mig, mig_pending, ecc_off, ecc_off_pending;
	struct list_head instances;
	struct lab_scheduler scheduler;
	struct lab_moves migration;
	u32 made;			/* id of the instance created last */
	struct proc_dir_entry *proc;
	enum lab_fault fault;
	unsigned int fault_value;	/* times left, or seconds of a hang */
	unsigned int last_xid;
	unsigned int power_limit;	/* in milliwatts, as it was told; 0: the board's own */
	unsigned int users;		/* that have its device file open */
	unsigned int refused;		/* times that they kept somebody from the unbind lock */
	wait_queue_head_t released;
	char sensors[LAB_TEXT];
	u8 memory[LAB_MAX_VGPUS][LAB_REGISTER_SIZE];	/* stands for the framebuffer: a piece for each vGPU, by its number */
};

struct lab_vgpu {
	struct list_head node;
	struct lab_gpu *gpu;
	const struct lab_type *type;
	const struct lab_gi *gi;	/* NULL: time-sliced */
	struct device *parent;		/* the PF or VF that carries it */
	struct device *owner;		/* the VF or the mdev that is it */
	u32 instance, placement, piece;	/* piece: of the GPU's memory, the lowest that is free */
	guid_t uuid;
	bool open;
	pid_t pid;			/* of the process that opened it */
	char params[LAB_TEXT];
};

/* Of a vGPU: the first four stay from its registration on, GPU, type and seed are those of an open one. */
struct lab_migration {
	struct vfio_migration_ops ops;
	struct vfio_device *vdev;
	u8 *device;
	u32 size;
	struct lab_gpu *gpu;
	const struct lab_type *type;
	struct mutex lock;		/* outside lab_lock, of what follows */
	enum vfio_device_mig_state state;
	struct lab_stream *stream;
	u32 seed;
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
u8 *lab_vgpu_memory(struct device *owner);
const struct lab_type *lab_vgpu_open(struct device *owner);
void lab_vgpu_close(struct device *owner);
int lab_vgpu_place(struct lab_vgpu *vgpu, u32 start);
bool lab_take_fault(struct lab_gpu *gpu, enum lab_fault fault);

void lab_migration_init(struct lab_migration *of, struct vfio_device *vdev, u8 *device, u32 size);
void lab_migration_open(struct lab_migration *of, const struct lab_type *type);
void lab_migration_reset(struct lab_migration *of);

ssize_t lab_mig_show(struct lab_gpu *gpu, char *buf);
int lab_mig_command(struct lab_gpu *gpu, const char *buf);
void lab_mig_clear(struct lab_gpu *gpu);
int lab_capabilities_init(struct proc_dir_entry *root);
struct proc_dir_entry *lab_capability_add(struct lab_gpu *gpu, const struct lab_gi *gi, u32 compute);

void lab_ids_add(struct lab_gpu *gpu, struct pci_dev *pdev);
void lab_ids_remove(void);

extern const struct attribute_group *lab_nvidia_groups[];
int lab_vendor_probe(struct pci_dev *pdev);
void lab_vendor_remove(struct pci_dev *pdev);
extern struct mdev_driver lab_mdev_driver;
int lab_mdev_probe(struct pci_dev *pdev, struct lab_gpu *gpu);
void lab_mdev_remove(struct pci_dev *pdev);
int lab_device_files_init(void);
void lab_device_files_exit(void);
int lab_state_init(void);
void lab_state_exit(void);
#endif
