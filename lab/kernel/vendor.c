// SPDX-License-Identifier: GPL-2.0
/* The vendor-specific VFIO framework: every VF is a VFIO device that needs a vGPU type to open. */
#include <linux/uaccess.h>
#include <linux/vfio_pci_core.h>
#include "vgpu_lab.h"

struct lab_vf {
	struct vfio_pci_core_device core;
	const struct lab_type *type;	/* while open */
	struct lab_migration migration;
	u8 written[LAB_REGISTER_SIZE];
};

static struct lab_vf *vf_of(struct vfio_device *vdev)
{
	return container_of(vdev, struct lab_vf, core.vdev);
}

static int vendor_open(struct vfio_device *vdev)
{
	struct lab_vf *vf = vf_of(vdev);
	int ret;

	vf->type = lab_vgpu_open(vdev->dev);
	if (IS_ERR(vf->type))
		return PTR_ERR(vf->type);
	ret = vfio_pci_core_enable(&vf->core);
	if (ret) {
		lab_vgpu_close(vdev->dev);
		return ret;
	}
	memcpy(vf->written, lab_vgpu_memory(vdev->dev), sizeof(vf->written));
	lab_migration_open(&vf->migration, vf->type);
	vfio_pci_core_finish_enable(&vf->core);
	return 0;
}

static void vendor_close(struct vfio_device *vdev)
{
	lab_migration_reset(&vf_of(vdev)->migration);
	memcpy(lab_vgpu_memory(vdev->dev), vf_of(vdev)->written, sizeof(vf_of(vdev)->written));
	vfio_pci_core_close_device(vdev);
	lab_vgpu_close(vdev->dev);
}

/* The place of the guest's own bytes in what it reads or writes; NULL: it asks for something else. */
static u8 *register_at(struct lab_vf *vf, loff_t at, size_t count)
{
	u64 offset = (at & VFIO_PCI_OFFSET_MASK) - LAB_REGISTER;

	if (VFIO_PCI_OFFSET_TO_INDEX(at) != VFIO_PCI_CONFIG_REGION_INDEX || offset >= LAB_REGISTER_SIZE ||
	    count > LAB_REGISTER_SIZE - offset)
		return NULL;
	return vf->written + offset;
}

static ssize_t vendor_write(struct vfio_device *vdev, const char __user *buf, size_t count, loff_t *ppos)
{
	u8 *written = register_at(vf_of(vdev), *ppos, count);

	if (!written)
		return vfio_pci_core_write(vdev, buf, count, ppos);
	if (copy_from_user(written, buf, count))
		return -EFAULT;
	*ppos += count;
	return count;
}

static long vendor_ioctl(struct vfio_device *vdev, unsigned int cmd, unsigned long arg)
{
	struct lab_vf *vf = vf_of(vdev);

	if (cmd == VFIO_DEVICE_RESET)	/* which clears no framebuffer */
		lab_migration_reset(&vf->migration);
	return vfio_pci_core_ioctl(vdev, cmd, arg);
}

/* The guest reads the ids of its vGPU type where the emulated function has its own. */
static ssize_t vendor_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	struct lab_vf *vf = vf_of(vdev);
	const struct lab_type *type = vf->type;
	const struct { u8 at, value; } ids[] = {
		{ 0, NV_VENDOR & 0xff }, { 1, NV_VENDOR >> 8 },
		{ 2, type->device & 0xff }, { 3, type->device >> 8 },
		{ 9, NV_CLASS & 0xff }, { 10, NV_CLASS >> 8 & 0xff }, { 11, NV_CLASS >> 16 },
		{ 0x2c, NV_VENDOR & 0xff }, { 0x2d, NV_VENDOR >> 8 },
		{ 0x2e, type->subsystem & 0xff }, { 0x2f, type->subsystem >> 8 },
	};
	u64 start = *ppos & VFIO_PCI_OFFSET_MASK;
	bool config = VFIO_PCI_OFFSET_TO_INDEX(*ppos) == VFIO_PCI_CONFIG_REGION_INDEX;
	u8 *written = register_at(vf, *ppos, count);
	ssize_t done = vfio_pci_core_read(vdev, buf, count, ppos);
	unsigned int i;

	if (written && done > 0 && copy_to_user(buf, written, done))
		return -EFAULT;
	for (i = 0; config && done > 0 && i < ARRAY_SIZE(ids); i++)
		if (ids[i].at >= start && ids[i].at < start + done &&
		    put_user(ids[i].value, (u8 __user *)buf + ids[i].at - start))
			return -EFAULT;
	return done;
}

static const struct vfio_device_ops vendor_ops = {
	.name = "nvidia-vgpu-vfio-pci",
	.init = vfio_pci_core_init_dev, .release = vfio_pci_core_release_dev,
	.open_device = vendor_open, .close_device = vendor_close,
	.ioctl = vendor_ioctl, .device_feature = vfio_pci_core_ioctl_feature,
	.read = vendor_read, .write = vendor_write, .mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request, .match = vfio_pci_core_match,
};

int lab_vendor_probe(struct pci_dev *pdev)
{
	struct lab_vf *vf = vfio_alloc_device(lab_vf, core.vdev, &pdev->dev, &vendor_ops);
	int ret;

	if (IS_ERR(vf))
		return PTR_ERR(vf);
	dev_set_drvdata(&pdev->dev, &vf->core);
	lab_migration_init(&vf->migration, &vf->core.vdev, vf->written, sizeof(vf->written));
	ret = vfio_pci_core_register_device(&vf->core);
	if (ret)
		vfio_put_device(&vf->core.vdev);
	return ret;
}

void lab_vendor_remove(struct pci_dev *pdev)
{
	struct vfio_pci_core_device *core = dev_get_drvdata(&pdev->dev);

	vfio_pci_core_unregister_device(core);
	lab_vgpu_destroy(&pdev->dev);
	vfio_put_device(&core->vdev);
}
