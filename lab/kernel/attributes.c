// SPDX-License-Identifier: GPL-2.0
/* sysfs of a vGPU: <VF>/nvidia/ and <mdev>/nvidia/. */
#include "vgpu_lab.h"

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lab_gpu *gpu = lab_gpu_of(to_pci_dev(dev));
	ssize_t len = sysfs_emit(buf, "ID    : vGPU Name\n");
	unsigned int i;

	guard(mutex)(&lab_lock);
	for (i = 0; !lab_vgpu_of(dev) && i < gpu->nr_types; i++)
		if (lab_available(gpu, &gpu->types[i]))
			len += sysfs_emit_at(buf, len, "%-5u : %s\n", gpu->types[i].id, gpu->types[i].name);
	return len;
}
static DEVICE_ATTR_RO(creatable_vgpu_types);

/* Reads of a vGPU; before there is one, all but its type are ENXIO. */
#define VGPU_SHOW(name, none, expression) \
	static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *buf) \
	{ \
		struct lab_vgpu *vgpu; \
		guard(mutex)(&lab_lock); \
		vgpu = lab_vgpu_of(dev); \
		return vgpu ? (expression) : (none); \
	}

VGPU_SHOW(current_vgpu_type, sysfs_emit(buf, "0\n"), sysfs_emit(buf, "%u\n", vgpu->type->id))
VGPU_SHOW(vgpu_params, -ENXIO, sysfs_emit(buf, "%s\n", vgpu->params))
VGPU_SHOW(placement_id, -ENXIO,
	  vgpu->placement == NO_PLACEMENT ? -ENXIO : sysfs_emit(buf, "%u\n", vgpu->placement))
/* A time-sliced vGPU has no GPU instance, which NVIDIA writes as all ones. */
VGPU_SHOW(gpu_instance_id, -ENXIO, sysfs_emit(buf, "%u\n", vgpu->gi ? vgpu->gi->id : U32_MAX))
static DEVICE_ATTR_RO(gpu_instance_id);

static int set_type(struct device *dev, long id)
{
	struct lab_gpu *gpu = lab_gpu_of(to_pci_dev(dev));
	unsigned int i;

	scoped_guard(mutex, &lab_lock)
		if (lab_vgpu_of(dev))
			return -EPERM;
	for (i = 0; i < gpu->nr_types; i++)
		if (gpu->types[i].id == id)
			return lab_vgpu_create(gpu, &gpu->types[i], dev, dev, true, NULL);
	return -EINVAL;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attr,
				       const char *buf, size_t count)
{
	long id;
	int ret = kstrtol(buf, 10, &id);

	if (!ret)
		ret = id ? set_type(dev, id) : lab_vgpu_destroy(dev);
	return ret ? ret : count;
}
static DEVICE_ATTR_RW(current_vgpu_type);

static ssize_t vgpu_params_store(struct device *dev, struct device_attribute *attr,
				 const char *buf, size_t count)
{
	struct lab_vgpu *vgpu;

	guard(mutex)(&lab_lock);
	vgpu = lab_vgpu_of(dev);
	if (!vgpu)
		return -ENXIO;
	if (count >= LAB_TEXT)
		return -EINVAL;
	buf = skip_spaces(buf);		/* a blank clears all parameters */
	strscpy(vgpu->params, buf, LAB_TEXT);
	strim(vgpu->params);
	return count;
}
static DEVICE_ATTR_RW(vgpu_params);

static ssize_t placement_id_store(struct device *dev, struct device_attribute *attr,
				  const char *buf, size_t count)
{
	struct lab_vgpu *vgpu;
	u32 start;
	int ret = kstrtou32(buf, 10, &start);

	guard(mutex)(&lab_lock);
	vgpu = lab_vgpu_of(dev);
	if (!ret)
		ret = vgpu ? lab_vgpu_place(vgpu, start) : -ENXIO;
	return ret ? ret : count;
}
static DEVICE_ATTR_RW(placement_id);

static struct attribute *nvidia_attrs[] = {
	&dev_attr_creatable_vgpu_types.attr, &dev_attr_current_vgpu_type.attr, &dev_attr_vgpu_params.attr,
	&dev_attr_placement_id.attr, &dev_attr_gpu_instance_id.attr, NULL
};

/* An mdev has its type already; of PCI devices only the VFs of the vendor framework have the directory. */
static umode_t visible(struct kobject *kobj, struct attribute *attr, int n)
{
	struct device *dev = kobj_to_dev(kobj);

	if (!dev_is_pci(dev))
		return n < 2 ? 0 : attr->mode;
	if (to_pci_dev(dev)->is_virtfn && lab_gpu_of(to_pci_dev(dev))->framework == LAB_VENDOR_VFIO)
		return attr->mode;
	return SYSFS_GROUP_INVISIBLE;
}

static const struct attribute_group nvidia_group = {
	.name = "nvidia", .attrs = nvidia_attrs, .is_visible = visible,
};
const struct attribute_group *lab_nvidia_groups[] = { &nvidia_group, NULL };
