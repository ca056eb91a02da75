// SPDX-License-Identifier: GPL-2.0
/* The lab's guest driver: takes NVIDIA's PCI devices and says its version where NVIDIA's does. It drives nothing. */
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

static int probe(struct pci_dev *device, const struct pci_device_id *id)
{
	return pci_enable_device(device);
}

static void removed(struct pci_dev *device)
{
	pci_disable_device(device);
}

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
	{ }
};
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver driver = { .name = "nvidia", .id_table = ids, .probe = probe, .remove = removed };

static int version_show(struct seq_file *file, void *data)
{
	seq_puts(file, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " DRIVER_VERSION "\n");
	return 0;
}

static int __init begin(void)
{
	struct proc_dir_entry *directory = proc_mkdir("driver/nvidia", NULL);
	int error;

	if (!directory)
		return -ENOMEM;
	proc_create_single("version", 0444, directory, version_show);
	error = pci_register_driver(&driver);
	if (error)
		proc_remove(directory);
	return error;
}

static void __exit end(void)
{
	pci_unregister_driver(&driver);
	remove_proc_subtree("driver/nvidia", NULL);
}

module_init(begin);
module_exit(end);
MODULE_VERSION(DRIVER_VERSION);
MODULE_DESCRIPTION("Stand-in for NVIDIA's driver in guests of the lab");
MODULE_LICENSE("GPL");
