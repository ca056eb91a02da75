// SPDX-License-Identifier: GPL-2.0
/* The mdev framework: vGPU types offered on the PF or on each VF, vGPUs as emulated PCI functions. */
#include <linux/mdev.h>
#include <linux/slab.h>
#include <linux/unaligned.h>
#include <linux/uaccess.h>
#include <linux/vfio.h>
#include "vgpu_lab.h"

#define BAR0_SIZE SZ_16M
#define REGION_SHIFT 40
#define REGION_MASK ((1ULL << REGION_SHIFT) - 1)
#define CONFIG_SIZE 256

struct lab_mtype {
	struct mdev_type mtype;
	const struct lab_type *type;
	struct lab_parent *parent;
};

struct lab_parent {
	struct mdev_parent mdev_parent;
	struct lab_gpu *gpu;
	struct device *dev;
	bool single;			/* a VF carries one vGPU, a PF many */
	struct lab_mtype *mtypes;
	struct mdev_type **list;
};

struct lab_mdev {
	struct vfio_device vdev;
	struct lab_vgpu *vgpu;
	struct mutex lock;
	u8 config[CONFIG_SIZE];
};

/* What a guest sees: an NVIDIA 3D controller with one memory BAR and no interrupt. */

static void config_reset(struct lab_mdev *mdev)
{
	const struct lab_type *type = mdev->vgpu->type;
	u8 *config = mdev->config;

	memset(config, 0, CONFIG_SIZE);
	put_unaligned_le16(NV_VENDOR, config + PCI_VENDOR_ID);
	put_unaligned_le16(type->device, config + PCI_DEVICE_ID);
	put_unaligned_le32(NV_CLASS << 8 | 0xa1, config + PCI_CLASS_REVISION);
	put_unaligned_le16(NV_VENDOR, config + PCI_SUBSYSTEM_VENDOR_ID);
	put_unaligned_le16(type->subsystem, config + PCI_SUBSYSTEM_ID);
}

static void config_write(struct lab_mdev *mdev, u64 at, u8 value)
{
	u32 bar;

	if (at == PCI_COMMAND || at == PCI_COMMAND + 1 || at == PCI_INTERRUPT_LINE)
		mdev->config[at] = value;
	if (at < PCI_BASE_ADDRESS_0 || at >= PCI_BASE_ADDRESS_1)
		return;
	mdev->config[at] = value;
	bar = get_unaligned_le32(mdev->config + PCI_BASE_ADDRESS_0) & ~(u32)(BAR0_SIZE - 1);
	put_unaligned_le32(bar, mdev->config + PCI_BASE_ADDRESS_0);
}

static struct lab_mdev *mdev_of(struct vfio_device *vdev)
{
	return container_of(vdev, struct lab_mdev, vdev);
}

static u64 region_size(unsigned int index)
{
	if (index == VFIO_PCI_CONFIG_REGION_INDEX)
		return CONFIG_SIZE;
	return index == VFIO_PCI_BAR0_REGION_INDEX ? BAR0_SIZE : 0;
}

/* The BAR reads as zero and forgets what is written: there is no GPU behind it. */
static ssize_t region_rw(struct lab_mdev *mdev, char __user *buf, size_t count, loff_t *ppos, bool write)
{
	unsigned int index = *ppos >> REGION_SHIFT;
	u64 at = *ppos & REGION_MASK, i;
	u8 byte;

	if (at >= region_size(index) || count > region_size(index) - at)
		return -EINVAL;
	mutex_lock(&mdev->lock);
	for (i = 0; i < count; i++) {
		byte = index == VFIO_PCI_CONFIG_REGION_INDEX ? mdev->config[at + i] : 0;
		if (write ? get_user(byte, buf + i) : put_user(byte, buf + i))
			break;
		if (write && index == VFIO_PCI_CONFIG_REGION_INDEX)
			config_write(mdev, at + i, byte);
	}
	mutex_unlock(&mdev->lock);
	if (i < count)
		return -EFAULT;
	*ppos += count;
	return count;
}

static ssize_t mdev_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	return region_rw(mdev_of(vdev), buf, count, ppos, false);
}

static ssize_t mdev_write(struct vfio_device *vdev, const char __user *buf, size_t count, loff_t *ppos)
{
	return region_rw(mdev_of(vdev), (char __user *)buf, count, ppos, true);
}

static long device_info(void __user *arg)
{
	struct vfio_device_info info = {
		.argsz = sizeof(info),
		.flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
		.num_regions = VFIO_PCI_NUM_REGIONS,
		.num_irqs = VFIO_PCI_NUM_IRQS,
	};
	size_t size = offsetofend(struct vfio_device_info, num_irqs);

	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long region_info(void __user *arg)
{
	size_t size = offsetofend(struct vfio_region_info, offset);
	struct vfio_region_info info = {};

	if (copy_from_user(&info, arg, size))
		return -EFAULT;
	if (info.argsz < size || info.index >= VFIO_PCI_NUM_REGIONS)
		return -EINVAL;
	info.size = region_size(info.index);
	info.flags = info.size ? VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE : 0;
	info.offset = (u64)info.index << REGION_SHIFT;
	return copy_to_user(arg, &info, size) ? -EFAULT : 0;
}

static long irq_info(void __user *arg)
{
	struct vfio_irq_info info = {};

	if (copy_from_user(&info, arg, sizeof(info)))
		return -EFAULT;
	if (info.argsz < sizeof(info) || info.index >= VFIO_PCI_NUM_IRQS)
		return -EINVAL;
	info.flags = 0;
	info.count = 0;
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long mdev_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case VFIO_DEVICE_GET_INFO:
		return device_info((void __user *)arg);
	case VFIO_DEVICE_GET_REGION_INFO:
		return region_info((void __user *)arg);
	case VFIO_DEVICE_GET_IRQ_INFO:
		return irq_info((void __user *)arg);
	case VFIO_DEVICE_RESET:
		config_reset(mdev_of(vdev));
		return 0;
	default:
		return -ENOTTY;
	}
}

static int mdev_open(struct vfio_device *vdev)
{
	config_reset(mdev_of(vdev));
	return lab_vgpu_open(mdev_of(vdev)->vgpu);
}

static void mdev_close(struct vfio_device *vdev)
{
	lab_vgpu_close(mdev_of(vdev)->vgpu);
}

static const struct vfio_device_ops mdev_ops = {
	.name = "nvidia-vgpu-vfio",
	.open_device = mdev_open,
	.close_device = mdev_close,
	.read = mdev_read,
	.write = mdev_write,
	.ioctl = mdev_ioctl,
	.bind_iommufd = vfio_iommufd_emulated_bind,
	.unbind_iommufd = vfio_iommufd_emulated_unbind,
	.attach_ioas = vfio_iommufd_emulated_attach_ioas,
	.detach_ioas = vfio_iommufd_emulated_detach_ioas,
};

/* sysfs: <mdev>/nvidia/ */

static struct lab_vgpu *vgpu_of(struct device *dev)
{
	struct lab_mdev *mdev = dev_get_drvdata(dev);

	return mdev->vgpu;
}

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", vgpu_of(dev)->params);
}

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attr,
				 const char *buf, size_t count)
{
	return lab_params_store(vgpu_of(dev), buf, count);
}
static DEVICE_ATTR_RW(vgpu_params);

static ssize_t placement_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return lab_placement_show(vgpu_of(dev), buf);
}

static ssize_t placement_id_store(struct device *dev, struct device_attribute *attr,
				  const char *buf, size_t count)
{
	struct lab_vgpu *vgpu = vgpu_of(dev);
	ssize_t ret;

	mutex_lock(&vgpu->gpu->lock);
	ret = lab_placement_store(vgpu, buf, count);
	mutex_unlock(&vgpu->gpu->lock);
	return ret;
}
static DEVICE_ATTR_RW(placement_id);

static ssize_t gpu_instance_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", U32_MAX);
}
static DEVICE_ATTR_RO(gpu_instance_id);

static struct attribute *mdev_attrs[] = {
	&dev_attr_vgpu_params.attr,
	&dev_attr_placement_id.attr,
	&dev_attr_gpu_instance_id.attr,
	NULL
};
static const struct attribute_group mdev_group = { .name = "nvidia", .attrs = mdev_attrs };
static const struct attribute_group *mdev_groups[] = { &mdev_group, NULL };

/* The mdev bus */

static int mdev_probe(struct mdev_device *dev)
{
	struct lab_mtype *mtype = container_of(dev->type, struct lab_mtype, mtype);
	struct lab_parent *parent = mtype->parent;
	struct lab_mdev *mdev;
	struct lab_vgpu *vgpu;
	int ret;

	vgpu = lab_vgpu_create(parent->gpu, mtype->type, parent->dev, parent->single, &dev->uuid);
	if (IS_ERR(vgpu))
		return PTR_ERR(vgpu);
	mdev = vfio_alloc_device(lab_mdev, vdev, &dev->dev, &mdev_ops);
	if (IS_ERR(mdev)) {
		lab_vgpu_destroy(vgpu);
		return PTR_ERR(mdev);
	}
	mdev->vgpu = vgpu;
	mutex_init(&mdev->lock);
	dev_set_drvdata(&dev->dev, mdev);
	ret = vfio_register_emulated_iommu_dev(&mdev->vdev);
	if (ret) {
		vfio_put_device(&mdev->vdev);
		lab_vgpu_destroy(vgpu);
	}
	return ret;
}

static void mdev_remove(struct mdev_device *dev)
{
	struct lab_mdev *mdev = dev_get_drvdata(&dev->dev);

	vfio_unregister_group_dev(&mdev->vdev);
	lab_vgpu_destroy(mdev->vgpu);
	vfio_put_device(&mdev->vdev);
}

static unsigned int mdev_available(struct mdev_type *mtype)
{
	struct lab_mtype *lab = container_of(mtype, struct lab_mtype, mtype);
	struct lab_gpu *gpu = lab->parent->gpu;
	unsigned int left;
	struct lab_vgpu *vgpu;

	mutex_lock(&gpu->lock);
	left = lab_available(gpu, lab->type);
	if (lab->parent->single && left) {
		left = 1;
		list_for_each_entry(vgpu, &gpu->vgpus, node)
			if (vgpu->where == lab->parent->dev)
				left = 0;
	}
	mutex_unlock(&gpu->lock);
	return left;
}

static ssize_t mdev_description(struct mdev_type *mtype, char *buf)
{
	const struct lab_type *type = container_of(mtype, struct lab_mtype, mtype)->type;

	return sysfs_emit(buf, "num_heads=%u, frl_config=%u, framebuffer=%uM, max_resolution=%s, max_instance=%u\n",
			  type->heads, type->frl, type->fb_mib, type->resolution, type->max);
}

static struct mdev_driver lab_mdev_driver = {
	.device_api = VFIO_DEVICE_API_PCI_STRING,
	.probe = mdev_probe,
	.remove = mdev_remove,
	.get_available = mdev_available,
	.show_description = mdev_description,
	.driver = {
		.name = "nvidia-vgpu-vfio",
		.owner = THIS_MODULE,
		.mod_name = KBUILD_MODNAME,
		.dev_groups = mdev_groups,
	},
};

static void parent_free(struct lab_parent *parent)
{
	kfree(parent->list);
	kfree(parent->mtypes);
	kfree(parent);
}

int lab_mdev_probe(struct pci_dev *pdev, struct lab_gpu *gpu, bool single)
{
	struct lab_parent *parent = kzalloc(sizeof(*parent), GFP_KERNEL);
	unsigned int i;
	int ret = -ENOMEM;

	if (!parent)
		return -ENOMEM;
	parent->gpu = gpu;
	parent->dev = &pdev->dev;
	parent->single = single;
	parent->mtypes = kcalloc(gpu->nr_types, sizeof(*parent->mtypes), GFP_KERNEL);
	parent->list = kcalloc(gpu->nr_types, sizeof(*parent->list), GFP_KERNEL);
	if (parent->mtypes && parent->list) {
		for (i = 0; i < gpu->nr_types; i++) {
			parent->mtypes[i].type = &gpu->types[i];
			parent->mtypes[i].parent = parent;
			parent->mtypes[i].mtype.sysfs_name = gpu->types[i].sysfs_id;
			parent->mtypes[i].mtype.pretty_name = gpu->types[i].name;
			parent->list[i] = &parent->mtypes[i].mtype;
		}
		dev_set_drvdata(&pdev->dev, parent);
		ret = mdev_register_parent(&parent->mdev_parent, &pdev->dev, &lab_mdev_driver,
					   parent->list, gpu->nr_types);
	}
	if (ret)
		parent_free(parent);
	return ret;
}

void lab_mdev_remove(struct pci_dev *pdev)
{
	struct lab_parent *parent = dev_get_drvdata(&pdev->dev);

	mdev_unregister_parent(&parent->mdev_parent);
	parent_free(parent);
}

int lab_mdev_init(void)
{
	return mdev_register_driver(&lab_mdev_driver);
}

void lab_mdev_exit(void)
{
	mdev_unregister_driver(&lab_mdev_driver);
}
