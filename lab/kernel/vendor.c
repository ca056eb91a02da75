// SPDX-License-Identifier: GPL-2.0
/* The vendor-specific VFIO framework: every VF is a VFIO device that needs a vGPU type to open. */
#include <linux/uaccess.h>
#include <linux/vfio_pci_core.h>
#include "vgpu_lab.h"

struct lab_vf {
	struct vfio_pci_core_device core;
	struct lab_gpu *gpu;
	struct lab_vgpu *vgpu;		/* under gpu->lock */
};

static struct lab_vf *vf_of(struct device *dev)
{
	struct vfio_pci_core_device *core = dev_get_drvdata(dev);

	return container_of(core, struct lab_vf, core);
}

static struct lab_vf *vf_of_vdev(struct vfio_device *vdev)
{
	return container_of(vdev, struct lab_vf, core.vdev);
}

/* sysfs: <VF>/nvidia/ */

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lab_vf *vf = vf_of(dev);
	struct lab_gpu *gpu = vf->gpu;
	ssize_t len = sysfs_emit(buf, "ID    : vGPU Name\n");
	unsigned int i;

	mutex_lock(&gpu->lock);
	for (i = 0; !vf->vgpu && i < gpu->nr_types; i++)
		if (lab_creatable(gpu, &gpu->types[i]))
			len += sysfs_emit_at(buf, len, "%-5u : %s\n", gpu->types[i].id, gpu->types[i].name);
	mutex_unlock(&gpu->lock);
	return len;
}
static DEVICE_ATTR_RO(creatable_vgpu_types);

static ssize_t current_vgpu_type_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lab_vf *vf = vf_of(dev);
	u32 id;

	mutex_lock(&vf->gpu->lock);
	id = vf->vgpu ? vf->vgpu->type->id : 0;
	mutex_unlock(&vf->gpu->lock);
	return sysfs_emit(buf, "%u\n", id);
}

static int clear_type(struct lab_vf *vf)
{
	struct lab_vgpu *vgpu;
	int ret = 0;

	mutex_lock(&vf->gpu->lock);
	vgpu = vf->vgpu;
	if (!vgpu)
		ret = -EPERM;
	else if (vgpu->open)
		ret = -EBUSY;
	else
		vf->vgpu = NULL;
	mutex_unlock(&vf->gpu->lock);
	if (!ret)
		lab_vgpu_destroy(vgpu);
	return ret;
}

static int set_type(struct lab_vf *vf, long id)
{
	struct lab_gpu *gpu = vf->gpu;
	struct lab_vgpu *vgpu;
	unsigned int i;

	if (READ_ONCE(vf->vgpu))
		return -EPERM;
	for (i = 0; i < gpu->nr_types; i++)
		if (gpu->types[i].id == id)
			break;
	if (i == gpu->nr_types)
		return -EINVAL;
	vgpu = lab_vgpu_create(gpu, &gpu->types[i], &vf->core.pdev->dev, true, NULL);
	if (IS_ERR(vgpu))
		return PTR_ERR(vgpu);
	mutex_lock(&gpu->lock);
	vf->vgpu = vgpu;
	mutex_unlock(&gpu->lock);
	return 0;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attr,
				       const char *buf, size_t count)
{
	struct lab_vf *vf = vf_of(dev);
	long id;
	int ret = kstrtol(buf, 10, &id);

	if (!ret)
		ret = id ? set_type(vf, id) : clear_type(vf);
	return ret ? ret : count;
}
static DEVICE_ATTR_RW(current_vgpu_type);

static ssize_t vgpu_params_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lab_vf *vf = vf_of(dev);
	ssize_t ret;

	mutex_lock(&vf->gpu->lock);
	ret = vf->vgpu ? sysfs_emit(buf, "%s\n", vf->vgpu->params) : -ENXIO;
	mutex_unlock(&vf->gpu->lock);
	return ret;
}

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attr,
				 const char *buf, size_t count)
{
	struct lab_vf *vf = vf_of(dev);
	ssize_t ret;

	mutex_lock(&vf->gpu->lock);
	ret = vf->vgpu ? lab_params_store(vf->vgpu, buf, count) : -ENXIO;
	mutex_unlock(&vf->gpu->lock);
	return ret;
}
static DEVICE_ATTR_RW(vgpu_params);

static ssize_t placement_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lab_vf *vf = vf_of(dev);
	ssize_t ret;

	mutex_lock(&vf->gpu->lock);
	ret = vf->vgpu ? lab_placement_show(vf->vgpu, buf) : -ENXIO;
	mutex_unlock(&vf->gpu->lock);
	return ret;
}

static ssize_t placement_id_store(struct device *dev, struct device_attribute *attr,
				  const char *buf, size_t count)
{
	struct lab_vf *vf = vf_of(dev);
	ssize_t ret;

	mutex_lock(&vf->gpu->lock);
	ret = vf->vgpu ? lab_placement_store(vf->vgpu, buf, count) : -ENXIO;
	mutex_unlock(&vf->gpu->lock);
	return ret;
}
static DEVICE_ATTR_RW(placement_id);

static ssize_t gpu_instance_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	/* NVML's "no GPU instance": a time-sliced vGPU has none. */
	return READ_ONCE(vf_of(dev)->vgpu) ? sysfs_emit(buf, "%u\n", U32_MAX) : -ENXIO;
}
static DEVICE_ATTR_RO(gpu_instance_id);

static struct attribute *vendor_attrs[] = {
	&dev_attr_creatable_vgpu_types.attr,
	&dev_attr_current_vgpu_type.attr,
	&dev_attr_vgpu_params.attr,
	&dev_attr_placement_id.attr,
	&dev_attr_gpu_instance_id.attr,
	NULL
};

static bool vendor_group_visible(struct kobject *kobj)
{
	struct pci_dev *pdev = to_pci_dev(kobj_to_dev(kobj));
	struct lab_gpu *gpu = lab_gpu_of(pdev);

	return gpu && pdev->is_virtfn && gpu->framework == LAB_VENDOR_VFIO;
}

DEFINE_SIMPLE_SYSFS_GROUP_VISIBLE(vendor);

static const struct attribute_group vendor_group = {
	.name = "nvidia",
	.attrs = vendor_attrs,
	.is_visible = SYSFS_GROUP_VISIBLE(vendor),
};
const struct attribute_group *lab_vendor_groups[] = { &vendor_group, NULL };

/* VFIO */

static int vendor_open(struct vfio_device *vdev)
{
	struct lab_vf *vf = vf_of_vdev(vdev);
	struct lab_vgpu *vgpu = READ_ONCE(vf->vgpu);
	int ret;

	if (!vgpu)
		return -ENODEV;
	ret = lab_vgpu_open(vgpu);
	if (ret)
		return ret;
	ret = vfio_pci_core_enable(&vf->core);
	if (ret)
		lab_vgpu_close(vgpu);
	else
		vfio_pci_core_finish_enable(&vf->core);
	return ret;
}

static void vendor_close(struct vfio_device *vdev)
{
	lab_vgpu_close(vf_of_vdev(vdev)->vgpu);
	vfio_pci_core_close_device(vdev);
}

/* The guest reads the ids of its vGPU type where the emulated function has its own. */
static ssize_t vendor_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	const struct lab_type *type = vf_of_vdev(vdev)->vgpu->type;
	const struct { u8 at, value; } ids[] = {
		{ 0, NV_VENDOR & 0xff }, { 1, NV_VENDOR >> 8 },
		{ 2, type->device & 0xff }, { 3, type->device >> 8 },
		{ 9, NV_CLASS & 0xff }, { 10, NV_CLASS >> 8 & 0xff }, { 11, NV_CLASS >> 16 },
		{ 0x2c, NV_VENDOR & 0xff }, { 0x2d, NV_VENDOR >> 8 },
		{ 0x2e, type->subsystem & 0xff }, { 0x2f, type->subsystem >> 8 },
	};
	u64 start = *ppos & VFIO_PCI_OFFSET_MASK;
	bool config = VFIO_PCI_OFFSET_TO_INDEX(*ppos) == VFIO_PCI_CONFIG_REGION_INDEX;
	ssize_t done = vfio_pci_core_read(vdev, buf, count, ppos);
	unsigned int i;

	for (i = 0; config && done > 0 && i < ARRAY_SIZE(ids); i++)
		if (ids[i].at >= start && ids[i].at < start + done &&
		    put_user(ids[i].value, (u8 __user *)buf + ids[i].at - start))
			return -EFAULT;
	return done;
}

static const struct vfio_device_ops vendor_ops = {
	.name = "nvidia-vgpu-vfio-pci",
	.init = vfio_pci_core_init_dev,
	.release = vfio_pci_core_release_dev,
	.open_device = vendor_open,
	.close_device = vendor_close,
	.ioctl = vfio_pci_core_ioctl,
	.device_feature = vfio_pci_core_ioctl_feature,
	.read = vendor_read,
	.write = vfio_pci_core_write,
	.mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_pci_core_match,
	.bind_iommufd = vfio_iommufd_physical_bind,
	.unbind_iommufd = vfio_iommufd_physical_unbind,
	.attach_ioas = vfio_iommufd_physical_attach_ioas,
	.detach_ioas = vfio_iommufd_physical_detach_ioas,
};

int lab_vendor_probe(struct pci_dev *pdev, struct lab_gpu *gpu)
{
	struct lab_vf *vf = vfio_alloc_device(lab_vf, core.vdev, &pdev->dev, &vendor_ops);
	int ret;

	if (IS_ERR(vf))
		return PTR_ERR(vf);
	vf->gpu = gpu;
	dev_set_drvdata(&pdev->dev, &vf->core);
	ret = vfio_pci_core_register_device(&vf->core);
	if (ret)
		vfio_put_device(&vf->core.vdev);
	return ret;
}

void lab_vendor_remove(struct pci_dev *pdev)
{
	struct lab_vf *vf = vf_of(&pdev->dev);

	vfio_pci_core_unregister_device(&vf->core);
	if (vf->vgpu)
		lab_vgpu_destroy(vf->vgpu);
	vfio_put_device(&vf->core.vdev);
}
