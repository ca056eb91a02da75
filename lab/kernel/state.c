// SPDX-License-Identifier: GPL-2.0
/*
 * What the NVML library and the stand-ins read, and the switches for failures:
 * /sys/kernel/vgpu_lab/gpus/<n>/, /proc/driver/nvidia/ and /dev/nvidiactl (counts NVML clients).
 */
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include "vgpu_lab.h"

atomic_t lab_nvml_clients = ATOMIC_INIT(0);

static struct kobject *root_kobj, *gpus_kobj;
static struct proc_dir_entry *proc_root;
static const char *const fault_names[] = { "none", "busy", "io", "hang", "open" };

struct lab_attr {
	struct attribute attr;
	ssize_t (*show)(struct lab_gpu *gpu, char *buf);
	ssize_t (*store)(struct lab_gpu *gpu, const char *buf, size_t count);
};

static ssize_t attr_show(struct kobject *kobj, struct attribute *attr, char *buf)
{
	return container_of(attr, struct lab_attr, attr)->show(container_of(kobj, struct lab_gpu, kobj), buf);
}

static ssize_t attr_store(struct kobject *kobj, struct attribute *attr, const char *buf, size_t count)
{
	struct lab_attr *lab = container_of(attr, struct lab_attr, attr);

	return lab->store ? lab->store(container_of(kobj, struct lab_gpu, kobj), buf, count) : -EPERM;
}

static ssize_t state_show(struct lab_gpu *gpu, char *buf)
{
	ssize_t len;

	mutex_lock(&gpu->lock);
	len = sysfs_emit(buf, "bdf %s\ndevice %x\nsubsystem %x\nbound %d\nlost %d\nheterogeneous %d\n"
			 "numvfs %d\ntotalvfs %u\nframework %d\nlast_xid %u\nnuma %d\ndriver %s\n",
			 gpu->bdf, gpu->device, gpu->subsystem, gpu->pdev != NULL, gpu->lost,
			 gpu->heterogeneous, gpu->pdev ? pci_num_vf(gpu->pdev) : 0, gpu->totalvfs,
			 gpu->framework, gpu->last_xid,
			 gpu->pdev ? dev_to_node(&gpu->pdev->dev) : gpu->numa, lab_driver_version);
	mutex_unlock(&gpu->lock);
	return len;
}

/* One line per vGPU: instance type device uuid open placement pid */
static ssize_t vgpus_show(struct lab_gpu *gpu, char *buf)
{
	struct lab_vgpu *vgpu;
	ssize_t len = 0;

	mutex_lock(&gpu->lock);
	list_for_each_entry(vgpu, &gpu->vgpus, node)
		len += sysfs_emit_at(buf, len, "%u %u %s %pUl %d %u %d\n", vgpu->instance, vgpu->type->id,
				     dev_name(vgpu->where), &vgpu->uuid, vgpu->open, vgpu->placement,
				     vgpu->pid);
	mutex_unlock(&gpu->lock);
	return len;
}

/* Types of which one more can be made now: "id left" */
static ssize_t creatable_show(struct lab_gpu *gpu, char *buf)
{
	unsigned int i, left;
	ssize_t len = 0;

	mutex_lock(&gpu->lock);
	for (i = 0; i < gpu->nr_types; i++) {
		left = lab_available(gpu, &gpu->types[i]);
		if (left)
			len += sysfs_emit_at(buf, len, "%u %u\n", gpu->types[i].id, left);
	}
	mutex_unlock(&gpu->lock);
	return len;
}

static ssize_t fault_create_show(struct lab_gpu *gpu, char *buf)
{
	return sysfs_emit(buf, "%s %u\n", fault_names[gpu->fault], gpu->fault_value);
}

/* "busy|io|open [TIMES]", "hang [SECONDS]", "none" (also lets a hung create go on) */
static ssize_t fault_create_store(struct lab_gpu *gpu, const char *buf, size_t count)
{
	unsigned int value = 1;
	char name[8];
	int fault;

	if (sscanf(buf, "%7s %u", name, &value) < 1 || !value)
		return -EINVAL;
	fault = match_string(fault_names, ARRAY_SIZE(fault_names), name);
	if (fault < 0)
		return -EINVAL;
	mutex_lock(&gpu->lock);
	gpu->fault = fault;
	gpu->fault_value = value;
	mutex_unlock(&gpu->lock);
	wake_up_all(&gpu->released);
	return count;
}

static ssize_t lost_show(struct lab_gpu *gpu, char *buf)
{
	return sysfs_emit(buf, "%d\n", gpu->lost);
}

static ssize_t lost_store(struct lab_gpu *gpu, const char *buf, size_t count)
{
	int ret = kstrtobool(buf, &gpu->lost);

	return ret ? ret : count;
}

static ssize_t heterogeneous_show(struct lab_gpu *gpu, char *buf)
{
	return sysfs_emit(buf, "%d\n", gpu->heterogeneous);
}

static ssize_t heterogeneous_store(struct lab_gpu *gpu, const char *buf, size_t count)
{
	bool on;
	int ret = kstrtobool(buf, &on);

	if (!ret)
		ret = lab_set_heterogeneous(gpu, on);
	return ret ? ret : count;
}

static ssize_t xid_show(struct lab_gpu *gpu, char *buf)
{
	return sysfs_emit(buf, "%u\n", gpu->last_xid);
}

/* "NUMBER [TEXT]": the driver's line in the kernel log */
static ssize_t xid_store(struct lab_gpu *gpu, const char *buf, size_t count)
{
	char text[160] = "injected";
	unsigned int xid;

	if (sscanf(buf, "%u %159[^\n]", &xid, text) < 1)
		return -EINVAL;
	gpu->last_xid = xid;
	pr_err("NVRM: Xid (PCI:%s): %u, pid='<unknown>', name=<unknown>, %s\n", gpu->bdf, xid, text);
	return count;
}

static ssize_t sensors_show(struct lab_gpu *gpu, char *buf)
{
	return sysfs_emit(buf, "%s", gpu->sensors);
}

/* "KEY VALUE" lines that go before the facts of the same key in NVML's answers */
static ssize_t sensors_store(struct lab_gpu *gpu, const char *buf, size_t count)
{
	if (count >= LAB_TEXT)
		return -EINVAL;
	strscpy(gpu->sensors, buf, LAB_TEXT);
	return count;
}

#define LAB_ATTR(name, mode) \
	static struct lab_attr name##_attr = { { #name, mode }, name##_show, name##_store }
#define LAB_ATTR_RO(name) static struct lab_attr name##_attr = { { #name, 0444 }, name##_show, NULL }
LAB_ATTR_RO(state);
LAB_ATTR_RO(vgpus);
LAB_ATTR_RO(creatable);
LAB_ATTR(fault_create, 0644);
LAB_ATTR(lost, 0644);
LAB_ATTR(heterogeneous, 0644);
LAB_ATTR(xid, 0644);
LAB_ATTR(sensors, 0644);

static struct attribute *gpu_attrs[] = {
	&state_attr.attr, &vgpus_attr.attr, &creatable_attr.attr, &fault_create_attr.attr,
	&lost_attr.attr, &heterogeneous_attr.attr, &xid_attr.attr, &sensors_attr.attr, NULL
};

/* These exceed a page on GPUs with many types, so they are binary attributes. */
static ssize_t facts_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			  char *buf, loff_t at, size_t count)
{
	struct lab_gpu *gpu = container_of(kobj, struct lab_gpu, kobj);

	return memory_read_from_buffer(buf, count, &at, gpu->facts, gpu->facts_len);
}
static BIN_ATTR_RO(facts, 0);

static ssize_t types_read(struct file *file, struct kobject *kobj, struct bin_attribute *attr,
			  char *buf, loff_t at, size_t count)
{
	struct lab_gpu *gpu = container_of(kobj, struct lab_gpu, kobj);

	return memory_read_from_buffer(buf, count, &at, gpu->types_text, gpu->types_len);
}
static BIN_ATTR_RO(types, 0);

static struct bin_attribute *gpu_bin_attrs[] = { &bin_attr_facts, &bin_attr_types, NULL };
static const struct attribute_group gpu_group = { .attrs = gpu_attrs, .bin_attrs = gpu_bin_attrs };
static const struct attribute_group *gpu_groups[] = { &gpu_group, NULL };

static void gpu_release(struct kobject *kobj)
{
	/* A GPU is part of the configuration and is freed with it. */
}

static const struct sysfs_ops gpu_sysfs_ops = { .show = attr_show, .store = attr_store };
static const struct kobj_type gpu_ktype = {
	.sysfs_ops = &gpu_sysfs_ops,
	.default_groups = gpu_groups,
	.release = gpu_release,
};

/* /proc/driver/nvidia/gpus/<BDF>/unbindLock: 1 is taken only while no NVML client is there. */

static int lock_show(struct seq_file *seq, void *unused)
{
	struct lab_gpu *gpu = seq->private;

	seq_printf(seq, "%d\n", gpu->unbind_lock);
	return 0;
}

static int lock_open(struct inode *inode, struct file *file)
{
	return single_open(file, lock_show, pde_data(inode));
}

static ssize_t lock_write(struct file *file, const char __user *buf, size_t count, loff_t *ppos)
{
	struct lab_gpu *gpu = pde_data(file_inode(file));
	bool on;
	int ret = kstrtobool_from_user(buf, count, &on);

	if (ret)
		return ret;
	WRITE_ONCE(gpu->unbind_lock, on && !atomic_read(&lab_nvml_clients));
	return count;
}

static const struct proc_ops lock_ops = {
	.proc_open = lock_open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = lock_write,
};

static int version_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s\n", lab_driver_version);
	return 0;
}

static int ctl_open(struct inode *inode, struct file *file)
{
	atomic_inc(&lab_nvml_clients);
	return 0;
}

static int ctl_release(struct inode *inode, struct file *file)
{
	atomic_dec(&lab_nvml_clients);
	return 0;
}

static const struct file_operations ctl_fops = {
	.owner = THIS_MODULE,
	.open = ctl_open,
	.release = ctl_release,
};
static struct miscdevice ctl = { MISC_DYNAMIC_MINOR, "nvidiactl", &ctl_fops, .mode = 0666 };

int lab_gpu_publish(struct lab_gpu *gpu)
{
	struct proc_dir_entry *dir;
	char path[40];
	int ret = kobject_init_and_add(&gpu->kobj, &gpu_ktype, gpus_kobj, "%d", gpu->index);

	if (ret) {
		kobject_put(&gpu->kobj);
		return ret;
	}
	snprintf(path, sizeof(path), "gpus/%s", gpu->bdf);
	dir = proc_mkdir(path, proc_root);
	return dir && proc_create_data("unbindLock", 0600, dir, &lock_ops, gpu) ? 0 : -ENOMEM;
}

int lab_state_init(void)
{
	struct lab_gpu *gpu;
	int ret = misc_register(&ctl);

	if (ret)
		return ret;
	proc_root = proc_mkdir("driver/nvidia", NULL);
	root_kobj = kobject_create_and_add("vgpu_lab", kernel_kobj);
	gpus_kobj = root_kobj ? kobject_create_and_add("gpus", root_kobj) : NULL;
	ret = -ENOMEM;
	if (!gpus_kobj || !proc_root || !proc_mkdir("gpus", proc_root) ||
	    !proc_create_single("version", 0444, proc_root, version_show))
		goto undo;
	list_for_each_entry(gpu, &lab_gpus, node) {
		ret = lab_gpu_publish(gpu);
		if (ret)
			goto undo;
	}
	return 0;
undo:
	lab_state_exit();
	return ret;
}

void lab_state_exit(void)
{
	struct lab_gpu *gpu;

	list_for_each_entry(gpu, &lab_gpus, node)
		if (gpu->kobj.state_in_sysfs)
			kobject_put(&gpu->kobj);
	kobject_put(gpus_kobj);
	kobject_put(root_kobj);
	proc_remove(proc_root);
	misc_deregister(&ctl);
}
