// SPDX-License-Identifier: Apache-2.0
/* What the check of a guest calls of CUDA's driver API. Its devices are those that the module took; their memory is the
 * process's own. */
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int devices(void)
{
	glob_t found;
	int count = glob("/sys/bus/pci/drivers/nvidia/[0-9a-f]*:*", 0, NULL, &found) ? 0 : (int)found.gl_pathc;

	return count;
}

int cuInit(unsigned flags) { return devices() ? 0 : 100; }
int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuDeviceGetCount(int *count) { *count = devices(); return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return number < devices() ? 0 : 101; }
int cuDeviceGetName(char *name, int size, int device) { snprintf(name, size, "device %d of the lab", device); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = 1ul << 30; return 0; }
int cuCtxCreate_v2(uintptr_t *context, unsigned flags, int device) { *context = device + 1; return 0; }
int cuCtxDestroy_v2(uintptr_t context) { return 0; }
int cuMemAlloc_v2(void **memory, size_t bytes) { *memory = malloc(bytes); return *memory ? 0 : 2; }
int cuMemFree_v2(void *memory) { free(memory); return 0; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
