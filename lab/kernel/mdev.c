// SPDX-License-Identifier: GPL-2.0
/* The mdev framework: vGPU types offered on the PF or on each VF, vGPUs as emulated PCI functions. */
#include <linux/mdev.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/unaligned.h>
#include <linux/vfio.h>
#include "vgpu_lab.h"

#define BAR0_SIZE SZ_16M
#define REGION_SHIFT 40

struct lab_mtype {
	struct mdev_type mtype;
	const struct lab_type *type;
};

/* A PF carries many vGPUs, a VF one. */
struct lab_parent {
	struct mdev_parent mdev_parent;
	struct lab_gpu *gpu;
	struct lab_mtype *mtypes;
	struct mdev_type **list;
};

struct lab_mdev {
	struct vfio_device vdev;
	struct mutex lock;
	struct lab_migration migration;
	u8 config[PCI_CFG_SPACE_SIZE];
};

/* What a guest sees: an NVIDIA 3D controller with one memory BAR and no interrupt. */
static void config_reset(u8 *config, const struct lab_type *type)
{
	memset(config, 0, PCI_CFG_SPACE_SIZE);
	put_unaligned_le16(NV_VENDOR, config + PCI_VENDOR_ID);
	put_unaligned_le16(type->device, config + PCI_DEVICE_ID);
	put_unaligned_le32(NV_CLASS << 8 | 0xa1, config + PCI_CLASS_REVISION);
	put_unaligned_le16(NV_VENDOR, config + PCI_SUBSYSTEM_VENDOR_ID);
	put_unaligned_le16(type->subsystem, config + PCI_SUBSYSTEM_ID);
}

static void config_write(u8 *config, u64 at, u8 value)
{
	u8 *bar = config + PCI_BASE_ADDRESS_0;

	if (at == PCI_COMMAND || at == PCI_COMMAND + 1 || at == PCI_INTERRUPT_LINE || at >= LAB_REGISTER)
		config[at] = value;
	if (at < PCI_BASE_ADDRESS_0 || at >= PCI_BASE_ADDRESS_1)
		return;
	config[at] = value;
	put_unaligned_le32(get_unaligned_le32(bar) & ~(u32)(BAR0_SIZE - 1), bar);
}

static u64 region_size(unsigned int index)
{
	if (index == VFIO_PCI_CONFIG_REGION_INDEX)
		return PCI_CFG_SPACE_SIZE;
	return index == VFIO_PCI_BAR0_REGION_INDEX ? BAR0_SIZE : 0;
}

/* The BAR reads as zero and forgets what is written: there is no GPU behind it. */
static ssize_t region_rw(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos, bool write)
{
	struct lab_mdev *mdev = container_of(vdev, struct lab_mdev, vdev);
	unsigned int index = *ppos >> REGION_SHIFT;
	u64 at = *ppos & (BIT_ULL(REGION_SHIFT) - 1), i;
	bool config = index == VFIO_PCI_CONFIG_REGION_INDEX;
	u8 byte;

	if (at >= region_size(index) || count > region_size(index) - at)
		return -EINVAL;
	guard(mutex)(&mdev->lock);
	for (i = 0; i < count; i++) {
		byte = config ? mdev->config[at + i] : 0;
		if (write ? get_user(byte, buf + i) : put_user(byte, buf + i))
			return -EFAULT;
		if (write && config)
			config_write(mdev->config, at + i, byte);
	}
	*ppos += count;
	return count;
}

static ssize_t mdev_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	return region_rw(vdev, buf, count, ppos, false);
}

static ssize_t mdev_write(struct vfio_device *vdev, const char __user *buf, size_t count, loff_t *ppos)
{
	return region_rw(vdev, (char __user *)buf, count, ppos, true);
}

static long device_info(void __user *arg)
{
	struct vfio_device_info info = {
		.argsz = sizeof(info), .flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
		.num_regions = VFIO_PCI_NUM_REGIONS, .num_irqs = VFIO_PCI_NUM_IRQS,
	};

	return copy_to_user(arg, &info, offsetofend(struct vfio_device_info, num_irqs)) ? -EFAULT : 0;
}

static long region_info(void __user *arg)
{
	struct vfio_region_info info;

	if (copy_from_user(&info, arg, sizeof(info)))
		return -EFAULT;
	if (info.argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	info.size = region_size(info.index);
	info.flags = info.size ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
	info.offset = (u64)info.index << REGION_SHIFT;
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static const struct lab_type *type_of(struct mdev_device *dev)
{
	return container_of(dev->type, struct lab_mtype, mtype)->type;
}

/* The register is the vGPU's piece of the GPU's memory. */
static void keep(struct lab_mdev *mdev)
{
	memcpy(lab_vgpu_memory(mdev->vdev.dev), mdev->config + LAB_REGISTER, LAB_REGISTER_SIZE);
}

static void restore(struct lab_mdev *mdev)
{
	memcpy(mdev->config + LAB_REGISTER, lab_vgpu_memory(mdev->vdev.dev), LAB_REGISTER_SIZE);
}

static long mdev_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	struct lab_mdev *mdev = container_of(vdev, struct lab_mdev, vdev);

	switch (cmd) {
	case VFIO_DEVICE_GET_INFO:
		return device_info((void __user *)arg);
	case VFIO_DEVICE_GET_REGION_INFO:
		return region_info((void __user *)arg);
	case VFIO_DEVICE_RESET:	/* which clears no framebuffer */
		lab_migration_reset(&mdev->migration);
		scoped_guard(mutex, &mdev->lock) {
			keep(mdev);
			config_reset(mdev->config, type_of(to_mdev_device(vdev->dev)));
			restore(mdev);
		}
		return 0;
	default:
		return -ENOTTY;
	}
}

static int mdev_open(struct vfio_device *vdev)
{
	const struct lab_type *type = lab_vgpu_open(vdev->dev);

	if (IS_ERR(type))
		return PTR_ERR(type);
	lab_migration_open(&container_of(vdev, struct lab_mdev, vdev)->migration, type);
	return 0;
}

static void mdev_close(struct vfio_device *vdev)
{
	lab_migration_reset(&container_of(vdev, struct lab_mdev, vdev)->migration);
	lab_vgpu_close(vdev->dev);
}

static const struct vfio_device_ops mdev_ops = {
	.name = "nvidia-vgpu-vfio",
	.open_device = mdev_open, .close_device = mdev_close,
	.read = mdev_read, .write = mdev_write, .ioctl = mdev_ioctl,
};

static struct lab_parent *parent_of(struct mdev_type *mtype)
{
	return container_of(mtype->parent, struct lab_parent, mdev_parent);
}

static int mdev_probe(struct mdev_device *dev)
{
	struct lab_parent *parent = parent_of(dev->type);
	struct lab_mdev *mdev = vfio_alloc_device(lab_mdev, vdev, &dev->dev, &mdev_ops);
	int ret;

	if (IS_ERR(mdev))
		return PTR_ERR(mdev);
	mutex_init(&mdev->lock);
	lab_migration_init(&mdev->migration, &mdev->vdev, mdev->config, sizeof(mdev->config));
	config_reset(mdev->config, type_of(dev));
	ret = lab_vgpu_create(parent->gpu, type_of(dev), parent->mdev_parent.dev, &dev->dev,
			      parent->gpu->framework == LAB_MDEV_VF, &dev->uuid);
	if (ret)
		goto put;
	restore(mdev);
	dev_set_drvdata(&dev->dev, mdev);
	ret = vfio_register_emulated_iommu_dev(&mdev->vdev);
	if (!ret)
		return 0;
	lab_vgpu_destroy(&dev->dev);
put:
	vfio_put_device(&mdev->vdev);
	return ret;
}

static void mdev_remove(struct mdev_device *dev)
{
	struct lab_mdev *mdev = dev_get_drvdata(&dev->dev);

	vfio_unregister_group_dev(&mdev->vdev);
	keep(mdev);
	lab_vgpu_destroy(&dev->dev);
	vfio_put_device(&mdev->vdev);
}

static unsigned int mdev_available(struct mdev_type *mtype)
{
	struct lab_gpu *gpu = parent_of(mtype)->gpu;
	unsigned int left;

	guard(mutex)(&lab_lock);
	left = lab_available(gpu, container_of(mtype, struct lab_mtype, mtype)->type);
	if (gpu->framework == LAB_MDEV_PF)
		return left;
	return left && !lab_vgpu_on(gpu, mtype->parent->dev);
}

static ssize_t mdev_description(struct mdev_type *mtype, char *buf)
{
	const struct lab_type *type = container_of(mtype, struct lab_mtype, mtype)->type;

	return sysfs_emit(buf, "num_heads=%u, frl_config=%u, framebuffer=%uM, max_resolution=%s, max_instance=%u\n",
			  type->heads, type->frl, type->fb_mib, type->resolution, type->max);
}

struct mdev_driver lab_mdev_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = mdev_probe, .remove = mdev_remove,
	.get_available = mdev_available, .show_description = mdev_description,
	.driver = {
		.name = "nvidia-vgpu-vfio", .owner = THIS_MODULE, .mod_name = KBUILD_MODNAME,
		.dev_groups = lab_nvidia_groups,
	},
};

/* Device-managed memory: it goes with the binding of the parent. */
int lab_mdev_probe(struct pci_dev *pdev, struct lab_gpu *gpu)
{
	struct lab_parent *parent = devm_kzalloc(&pdev->dev, sizeof(*parent), GFP_KERNEL);
	unsigned int i;

	if (!parent)
		return -ENOMEM;
	parent->gpu = gpu;
	parent->mtypes = devm_kcalloc(&pdev->dev, gpu->nr_types, sizeof(*parent->mtypes), GFP_KERNEL);
	parent->list = devm_kcalloc(&pdev->dev, gpu->nr_types, sizeof(*parent->list), GFP_KERNEL);
	if (!parent->mtypes || !parent->list)
		return -ENOMEM;
	for (i = 0; i < gpu->nr_types; i++) {
		parent->mtypes[i].type = &gpu->types[i];
		parent->mtypes[i].mtype.sysfs_name = gpu->types[i].sysfs_id;
		parent->mtypes[i].mtype.pretty_name = gpu->types[i].name;
		parent->list[i] = &parent->mtypes[i].mtype;
	}
	dev_set_drvdata(&pdev->dev, parent);
	return mdev_register_parent(&parent->mdev_parent, &pdev->dev, &lab_mdev_driver, parent->list,
				    gpu->nr_types);
}

void lab_mdev_remove(struct pci_dev *pdev)
{
	struct lab_parent *parent = dev_get_drvdata(&pdev->dev);

	mdev_unregister_parent(&parent->mdev_parent);
}
