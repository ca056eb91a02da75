// SPDX-License-Identifier: GPL-2.0
/*
 * NVIDIA's ids in the config space of the physical functions: the buses that carry them answer through us, so that
 * whatever reads it sees a GPU: lspci, libvirt, vfio-pci, and the guest that is given the whole device.
 */
#include <linux/pci.h>
#include "vgpu_lab.h"

static struct pci_ops *emulated;
static struct pci_ops with_ids;

static u32 patch(u32 value, int where, int size, int at, u32 wanted, int width)
{
	int byte;

	for (byte = 0; byte < width; byte++)
		if (at + byte >= where && at + byte < where + size) {
			value &= ~(0xffu << 8 * (at + byte - where));
			value |= (wanted >> 8 * byte & 0xff) << 8 * (at + byte - where);
		}
	return value;
}

static int read_config(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	int ret = emulated->read(bus, devfn, where, size, value);
	struct lab_gpu *gpu;

	if (ret || where > PCI_SUBSYSTEM_ID + 1)
		return ret;
	list_for_each_entry(gpu, &lab_gpus, node)
		if (gpu->bus == bus && gpu->devfn == devfn) {
			*value = patch(*value, where, size, PCI_VENDOR_ID, gpu->device << 16 | NV_VENDOR, 4);
			*value = patch(*value, where, size, PCI_CLASS_PROG, NV_CLASS, 3);
			*value = patch(*value, where, size, PCI_SUBSYSTEM_VENDOR_ID,
				       gpu->subsystem << 16 | NV_VENDOR, 4);
		}
	return 0;
}

/* Once for each GPU; it keeps the ids when another driver takes the device. */
void lab_ids_add(struct lab_gpu *gpu, struct pci_dev *pdev)
{
	if (gpu->bus)
		return;
	gpu->bus = pdev->bus;
	gpu->devfn = pdev->devfn;
	if (pdev->bus->ops == &with_ids)
		return;
	if (!emulated) {
		emulated = pdev->bus->ops;
		with_ids = *emulated;
		with_ids.read = read_config;
	}
	pci_bus_set_ops(pdev->bus, &with_ids);
}

void lab_ids_remove(void)
{
	struct lab_gpu *gpu;

	list_for_each_entry(gpu, &lab_gpus, node)
		if (gpu->bus)
			pci_bus_set_ops(gpu->bus, emulated);
}
