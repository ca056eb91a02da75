// SPDX-License-Identifier: GPL-2.0
/* A PCI driver named "nvidia" that binds emulated SR-IOV devices and gives them NVIDIA's ids. */
#include <linux/iommu.h>
#include <linux/mdev.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include "vgpu_lab.h"

static char *config = "/run/vgpu-lab/config";
module_param(config, charp, 0444);
MODULE_PARM_DESC(config, "file that says which GPUs to present");

struct lab_gpu *lab_gpu_of(struct pci_dev *pdev)
{
	struct lab_gpu *gpu;

	list_for_each_entry(gpu, &lab_gpus, node)
		if (!strcmp(gpu->bdf, pci_name(pci_physfn(pdev))))
			return gpu;
	return NULL;
}

static void take_ids(struct pci_dev *pdev, const struct lab_gpu *gpu)
{
	pdev->vendor = NV_VENDOR;
	pdev->device = gpu->device;
	pdev->class = NV_CLASS;
	pdev->subsystem_vendor = NV_VENDOR;
	pdev->subsystem_device = gpu->subsystem;
	if (gpu->numa >= 0 && node_online(gpu->numa))
		set_dev_node(&pdev->dev, gpu->numa);
}

static void set_bound(struct lab_gpu *gpu, struct pci_dev *pdev)
{
	guard(mutex)(&lab_lock);
	if (!pdev || !gpu->pdev) {	/* the scheduler is forgotten with the binding, which stands for a reset too */
		gpu->scheduler = (struct lab_scheduler){ 0 };
		gpu->ecc_off = gpu->ecc_off_pending;
	}
	gpu->pdev = pdev;
	gpu->heterogeneous = false;
	gpu->power_limit = 0;
	if (!pdev)
		gpu->unbind_lock = false;
	lab_mig_clear(gpu);		/* GPU instances end with every change of the binding */
	if (!pdev)			/* the mode that a board keeps is the pending one */
		gpu->mig = gpu->mig_pending = gpu->mig_reset && gpu->mig_pending;
}

/*
 * The driver manages the DMA of virtual functions only. The physical function's group it holds for itself, as any
 * driver does, so that VFIO refuses the neighbours of a GPU that is still in use here.
 */
static int lab_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct lab_gpu *gpu = lab_gpu_of(pdev);
	int ret;

	if (!gpu)
		return -ENODEV;
	take_ids(pdev, gpu);
	if (pdev->is_virtfn)
		return gpu->framework == LAB_VENDOR_VFIO ? lab_vendor_probe(pdev) : lab_mdev_probe(pdev, gpu);
	lab_ids_add(gpu, pdev);
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	if (pci_sriov_get_totalvfs(pdev))
		pci_sriov_set_totalvfs(pdev, gpu->totalvfs);
	ret = iommu_device_claim_dma_owner(&pdev->dev, &lab_gpus);
	if (ret)
		return ret;
	ret = gpu->framework == LAB_MDEV_PF ? lab_mdev_probe(pdev, gpu) : 0;
	if (!ret)
		set_bound(gpu, pdev);
	else
		iommu_device_release_dma_owner(&pdev->dev);
	return ret;
}

static void lab_remove(struct pci_dev *pdev)
{
	struct lab_gpu *gpu = lab_gpu_of(pdev);

	if (!pdev->is_virtfn) {
		/* as NVIDIA's does: until nothing uses the GPU any more */
		wait_event(gpu->released, !READ_ONCE(gpu->persistence) && !READ_ONCE(gpu->users));
		set_bound(gpu, NULL);
		pci_disable_sriov(pdev);
	}
	if (gpu->framework == LAB_VENDOR_VFIO && pdev->is_virtfn)
		lab_vendor_remove(pdev);
	else if (gpu->framework == (pdev->is_virtfn ? LAB_MDEV_VF : LAB_MDEV_PF))
		lab_mdev_remove(pdev);
	if (!pdev->is_virtfn)
		iommu_device_release_dma_owner(&pdev->dev);
}

/* Only the holder of the unbind lock may change the number of VFs. */
static int lab_sriov_configure(struct pci_dev *pdev, int count)
{
	struct lab_gpu *gpu = lab_gpu_of(pdev);
	int ret;

	if (!READ_ONCE(gpu->unbind_lock) || gpu->framework == LAB_MDEV_PF) {
		pci_err(pdev, "NVRM: SR-IOV is configured by sriov-manage only\n");
		return -EPERM;
	}
	set_bound(gpu, pdev);
	if (!count) {
		pci_disable_sriov(pdev);
		return 0;
	}
	ret = pci_enable_sriov(pdev, count);
	return ret ? ret : count;
}

static const struct pci_device_id lab_ids[] = {
	{ PCI_DEVICE(0x1b36, 0x0010) }, { PCI_DEVICE(NV_VENDOR, PCI_ANY_ID) }, {}
};

static struct pci_driver lab_driver = {
	.name = "nvidia", .id_table = lab_ids,
	.probe = lab_probe, .remove = lab_remove, .sriov_configure = lab_sriov_configure,
	.driver_managed_dma = true, .dev_groups = lab_nvidia_groups,
};

static int __init lab_init(void)
{
	int ret;

#ifdef REFUSES_LOAD
	pr_err("NVRM: this module was made to refuse\n");
	return -ENODEV;
#endif
	ret = lab_config_load(config);

	if (!ret)
		ret = lab_state_init();
	if (ret)
		goto free;
	ret = mdev_register_driver(&lab_mdev_driver);
	if (ret)
		goto state;
	ret = pci_register_driver(&lab_driver);
	if (!ret)
		return 0;
	mdev_unregister_driver(&lab_mdev_driver);
state:
	lab_state_exit();
free:
	lab_config_free();
	return ret;
}

static void __exit lab_exit(void)
{
	pci_unregister_driver(&lab_driver);
	lab_ids_remove();
	mdev_unregister_driver(&lab_mdev_driver);
	lab_state_exit();
	lab_config_free();
}

module_init(lab_init);
module_exit(lab_exit);
#ifdef DRIVER_VERSION
MODULE_VERSION(DRIVER_VERSION);
#endif
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("NVIDIA's vGPU kernel surface on emulated SR-IOV devices");
MODULE_IMPORT_NS(VFIO_PCI_CORE);
