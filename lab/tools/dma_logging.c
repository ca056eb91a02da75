// SPDX-License-Identifier: Apache-2.0
/*
 * Preloaded into libvirtd and, by it, into the QEMUs that it starts: the log of what a device wrote to its guest's memory,
 * without which QEMU lets no VM move live. A kernel with IOMMUFD has it of drivers that keep one; Debian 13's has none, and
 * the vGPUs of the lab write nothing, so that the log is empty and is kept here.
 */
#include <linux/vfio.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_log(const struct vfio_device_feature *feature)
{
	switch (feature->flags & VFIO_DEVICE_FEATURE_MASK) {
	case VFIO_DEVICE_FEATURE_DMA_LOGGING_START:
	case VFIO_DEVICE_FEATURE_DMA_LOGGING_STOP:
	case VFIO_DEVICE_FEATURE_DMA_LOGGING_REPORT:
		return 1;
	default:
		return 0;
	}
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	return request == VFIO_DEVICE_FEATURE && is_log(argument) ? 0 : syscall(SYS_ioctl, fd, request, argument);
}
