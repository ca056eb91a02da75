// SPDX-License-Identifier: GPL-2.0
/* What the NVML library and the stand-ins read, and the switches for failures: /sys/kernel/vgpu_lab/. */
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include "vgpu_lab.h"

static struct kobject *root_kobj, *gpus_kobj;
static struct proc_dir_entry *proc_root;
static const char *const faults[] = {
	"none", "busy", "io", "hang", "open", "instance", "save", "pre-copy", "stop-copy", "resume", "load", "keep",
};

struct lab_attr {
	struct attribute attr;
	ssize_t (*show)(struct lab_gpu *gpu, char *buf);
	int (*store)(struct lab_gpu *gpu, const char *buf);
};

static ssize_t attr_show(struct kobject *kobj, struct attribute *attr, char *buf)
{
	guard(mutex)(&lab_lock);
	return container_of(attr, struct lab_attr, attr)->show(container_of(kobj, struct lab_gpu, kobj), buf);
}

static ssize_t attr_store(struct kobject *kobj, struct attribute *attr, const char *buf, size_t count)
{
	int ret;

	guard(mutex)(&lab_lock);
	ret = container_of(attr, struct lab_attr, attr)->store(container_of(kobj, struct lab_gpu, kobj), buf);
	return ret ? ret : count;
}

/* "KEY VALUE" lines; the sensors come first, so that they go before what follows. */
static ssize_t state_show(struct lab_gpu *gpu, char *buf)
{
	const struct lab_scheduler *scheduler = &gpu->scheduler;
	const struct lab_moves *moves = &gpu->migration;
	struct pci_dev *pdev = gpu->pdev;

	return sysfs_emit(buf, "%sbdf %s\nbound %d\nlost %d\nheterogeneous %d\npersistence %d\nnumvfs %d\nlast_xid %u\nnuma %d\n"
			  "ecc_off %d\necc_off_pending %d\n"
			  "power_limit_set_mw %u\nrefused %u\nfault_create %s %u\nscheduler %u %u %u %u %u\n"
			  "migration %u %u %u %#x %#x\n", gpu->sensors, gpu->bdf, pdev != NULL, gpu->lost,
			  gpu->heterogeneous, gpu->persistence, pdev ? pci_num_vf(pdev) : 0, gpu->last_xid,
			  pdev ? dev_to_node(&pdev->dev) : -1, gpu->ecc_off, gpu->ecc_off_pending, gpu->power_limit, gpu->refused,
			  faults[gpu->fault], gpu->fault_value,
			  scheduler->policy, scheduler->arr, scheduler->factor, scheduler->frequency, scheduler->slice,
			  moves->size_kib, moves->dirty_kib_s, moves->seed, moves->oldest, moves->newest);
}

/* One line per vGPU: instance type device uuid open placement pid gpu-instance */
static ssize_t vgpus_show(struct lab_gpu *gpu, char *buf)
{
	struct lab_vgpu *vgpu;
	ssize_t len = 0;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		len += sysfs_emit_at(buf, len, "%u %u %s %pUl %d %u %d %d\n", vgpu->instance, vgpu->type->id,
				     dev_name(vgpu->parent), &vgpu->uuid, vgpu->open, vgpu->placement, vgpu->pid,
				     vgpu->gi ? (int)vgpu->gi->id : -1);
	return len;
}

/* Types of which one more can be made now: "id left" */
static ssize_t creatable_show(struct lab_gpu *gpu, char *buf)
{
	unsigned int i, left;
	ssize_t len = 0;

	for (i = 0; i < gpu->nr_types; i++) {
		left = lab_available(gpu, &gpu->types[i]);
		if (left)
			len += sysfs_emit_at(buf, len, "%u %u\n", gpu->types[i].id, left);
	}
	return len;
}

/* "busy|io|open|instance|save|pre-copy|stop-copy|resume|load|keep [TIMES]", "hang [SECONDS]", "none" (also lets a hung create go on) */
static int fault_create_store(struct lab_gpu *gpu, const char *buf)
{
	unsigned int value = 1;
	char name[12];
	int fault;

	if (sscanf(buf, "%11s %u", name, &value) < 1 || !value)
		return -EINVAL;
	fault = match_string(faults, ARRAY_SIZE(faults), name);
	if (fault < 0)
		return -EINVAL;
	gpu->fault = fault;
	gpu->fault_value = value;
	wake_up_all(&gpu->released);
	return 0;
}

static int lost_store(struct lab_gpu *gpu, const char *buf)
{
	return kstrtobool(buf, &gpu->lost);
}

/* Somebody who uses the module and shows no open file: it cannot be unloaded. */
static int hold(bool *held, const char *buf)
{
	bool wanted;

	if (kstrtobool(buf, &wanted))
		return -EINVAL;
	if (wanted && !*held)
		__module_get(THIS_MODULE);
	if (!wanted && *held)
		module_put(THIS_MODULE);
	WRITE_ONCE(*held, wanted);
	return 0;
}

static int held_store(struct lab_gpu *gpu, const char *buf)
{
	return hold(&gpu->held, buf);
}

/* A GPU that is kept initialised is used: it has a user until this is off. Nobody opens one that is locked. */
static int persistence_store(struct lab_gpu *gpu, const char *buf)
{
	int ret = gpu->pdev && !gpu->unbind_lock ? hold(&gpu->persistence, buf) : -EBUSY;

	wake_up_all(&gpu->released);
	return ret;
}

static int heterogeneous_store(struct lab_gpu *gpu, const char *buf)
{
	if (gpu->mig)
		return -EOPNOTSUPP;
	return list_empty(&gpu->vgpus) ? kstrtobool(buf, &gpu->heterogeneous) : -EBUSY;
}

/* The board keeps it, whoever writes it, a guest that has all of it too. It is so once the GPU is bound anew. */
static int ecc_mode_store(struct lab_gpu *gpu, const char *buf)
{
	bool on;

	if (kstrtobool(buf, &on))
		return -EINVAL;
	gpu->ecc_off_pending = !on;
	return 0;
}

/* The library has looked whether the board can. */
static int power_limit_store(struct lab_gpu *gpu, const char *buf)
{
	return gpu->pdev ? kstrtouint(buf, 10, &gpu->power_limit) : -ENODEV;
}

/* "NUMBER [TEXT]": the driver's line in the kernel log */
static int xid_store(struct lab_gpu *gpu, const char *buf)
{
	char text[160] = "injected";

	if (sscanf(buf, "%u %159[^\n]", &gpu->last_xid, text) < 1)
		return -EINVAL;
	pr_err("NVRM: Xid (PCI:%.*s): %u, pid='<unknown>', name=<unknown>, %s\n",
	       (int)(strlen(gpu->bdf) - 2), gpu->bdf, gpu->last_xid, text);
	return 0;
}

static int sensors_store(struct lab_gpu *gpu, const char *buf)
{
	size_t len = strlen(buf);

	if (len >= LAB_TEXT || (len && buf[len - 1] != '\n'))
		return -EINVAL;
	strscpy(gpu->sensors, buf, LAB_TEXT);
	return 0;
}

static bool has_open(struct lab_gpu *gpu)
{
	struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		if (vgpu->open)
			return true;
	return false;
}

/* sriov-manage's handshake; refused while a VM has a vGPU of this GPU, or persistence mode or an open file keeps it in use */
static int unbind_lock_store(struct lab_gpu *gpu, const char *buf)
{
	gpu->refused += gpu->users != 0;
	return has_open(gpu) || gpu->persistence || gpu->users ? -EBUSY : kstrtobool(buf, &gpu->unbind_lock);
}

/* The same as NVIDIA's own file: what was written reads back as 0 where it was refused. */
static int unbind_lock_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "%d\n", READ_ONCE(((struct lab_gpu *)seq->private)->unbind_lock));
	return 0;
}

static int unbind_lock_open(struct inode *inode, struct file *file)
{
	return single_open(file, unbind_lock_show, pde_data(inode));
}

static ssize_t unbind_lock_write(struct file *file, const char __user *buf, size_t count, loff_t *at)
{
	char text[4] = "";

	if (!count || count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buf, count))
		return -EFAULT;
	guard(mutex)(&lab_lock);
	unbind_lock_store(pde_data(file_inode(file)), text);
	return count;
}

static const struct proc_ops unbind_lock_ops = {
	.proc_open = unbind_lock_open, .proc_read = seq_read, .proc_lseek = seq_lseek, .proc_release = single_release,
	.proc_write = unbind_lock_write,
};

/* /proc/driver/nvidia/gpus/ADDRESS/unbindLock */
static int add_unbind_locks(void)
{
	struct proc_dir_entry *gpus = proc_mkdir("gpus", proc_root), *directory;
	struct lab_gpu *gpu;

	list_for_each_entry(gpu, &lab_gpus, node) {
		directory = gpus ? proc_mkdir(gpu->bdf, gpus) : NULL;
		if (!directory || !proc_create_data("unbindLock", 0644, directory, &unbind_lock_ops, gpu))
			return -ENOMEM;
	}
	return 0;
}

/* "POLICY ARR FACTOR FREQUENCY SLICE": only while no VM has a vGPU of this GPU, which is not in MIG mode */
static int scheduler_store(struct lab_gpu *gpu, const char *buf)
{
	struct lab_scheduler wanted;

	if (gpu->mig || has_open(gpu))
		return -EOPNOTSUPP;
	if (sscanf(buf, "%u %u %u %u %u", &wanted.policy, &wanted.arr, &wanted.factor, &wanted.frequency,
		   &wanted.slice) != 5)
		return -EINVAL;
	gpu->scheduler = wanted;
	return 0;
}

/* "SIZE_KIB DIRTY_KIB_S SEED OLDEST NEWEST" of what moves of each vGPU; a move that began already keeps its size */
static int migration_store(struct lab_gpu *gpu, const char *buf)
{
	struct lab_moves wanted;

	if (sscanf(buf, "%u %u %u %i %i", &wanted.size_kib, &wanted.dirty_kib_s, &wanted.seed, &wanted.oldest,
		   &wanted.newest) != 5 || !wanted.size_kib || wanted.oldest > wanted.newest)
		return -EINVAL;
	gpu->migration = wanted;
	return 0;
}

#define READABLE(name) static struct lab_attr name##_attr = { { #name, 0444 }, name##_show, NULL }
#define WRITABLE(name) static struct lab_attr name##_attr = { { #name, 0200 }, NULL, name##_store }
READABLE(state);
READABLE(vgpus);
READABLE(creatable);
static struct lab_attr mig_attr = { { "mig", 0444 }, lab_mig_show, NULL };
static struct lab_attr mig_command_attr = { { "mig_command", 0200 }, NULL, lab_mig_command };
WRITABLE(fault_create);
WRITABLE(lost);
WRITABLE(held);
WRITABLE(persistence);
WRITABLE(heterogeneous);
WRITABLE(ecc_mode);
WRITABLE(power_limit);
WRITABLE(xid);
WRITABLE(sensors);
WRITABLE(unbind_lock);
WRITABLE(scheduler);
WRITABLE(migration);

static struct attribute *gpu_attrs[] = {
	&state_attr.attr, &vgpus_attr.attr, &creatable_attr.attr, &fault_create_attr.attr, &lost_attr.attr, &held_attr.attr,
	&persistence_attr.attr, &heterogeneous_attr.attr, &power_limit_attr.attr, &xid_attr.attr, &sensors_attr.attr,
	&ecc_mode_attr.attr, &unbind_lock_attr.attr, &scheduler_attr.attr, &migration_attr.attr, &mig_attr.attr,
	&mig_command_attr.attr, NULL
};
ATTRIBUTE_GROUPS(gpu);

static void gpu_release(struct kobject *kobj)
{
	/* A GPU is part of the configuration and is freed with it. */
}

static const struct sysfs_ops gpu_sysfs_ops = { .show = attr_show, .store = attr_store };
static const struct kobj_type gpu_ktype = {
	.sysfs_ops = &gpu_sysfs_ops, .default_groups = gpu_groups, .release = gpu_release,
};

/* The text that the module was loaded with. */
static ssize_t config_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			   char *buf, loff_t at, size_t count)
{
	return memory_read_from_buffer(buf, count, &at, lab_config, strlen(lab_config));
}
static BIN_ATTR_RO(config, 0);

static int version_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s\n", lab_driver_version);
	return 0;
}

int lab_state_init(void)
{
	struct lab_gpu *gpu;
	int ret = 0;

	proc_root = proc_mkdir("driver/nvidia", NULL);
	root_kobj = kobject_create_and_add("vgpu_lab", kernel_kobj);
	gpus_kobj = root_kobj ? kobject_create_and_add("gpus", root_kobj) : NULL;
	if (!gpus_kobj || !proc_root ||
	    sysfs_create_bin_file(root_kobj, &bin_attr_config) ||
	    !proc_create_single("version", 0444, proc_root, version_show) ||
	    lab_capabilities_init(proc_root) || add_unbind_locks() || lab_device_files_init())
		ret = -ENOMEM;
	list_for_each_entry(gpu, &lab_gpus, node)
		if (!ret)
			ret = kobject_init_and_add(&gpu->kobj, &gpu_ktype, gpus_kobj, "%d", gpu->index);
	if (ret)
		lab_state_exit();
	return ret;
}

void lab_state_exit(void)
{
	struct lab_gpu *gpu;

	lab_device_files_exit();
	list_for_each_entry(gpu, &lab_gpus, node)
		if (gpu->kobj.state_initialized)
			kobject_put(&gpu->kobj);
	kobject_put(gpus_kobj);
	kobject_put(root_kobj);
	proc_remove(proc_root);
}
