// SPDX-License-Identifier: Apache-2.0
/* Init, errors, versions, finding devices, and the checks that every call shares. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "lab.h"

static const char *const messages[] = {
	[NVML_SUCCESS] = "Success",
	[NVML_ERROR_UNINITIALIZED] = "Uninitialized",
	[NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
	[NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
	[NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
	[NVML_ERROR_NOT_FOUND] = "Not Found",
	[NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
	[NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
	[NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
	[NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
	[NVML_ERROR_IN_USE] = "In use by another client",
	[NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
	[NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
};

nvmlReturn_t check_gpu(const struct gpu *gpu)
{
	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (gpu < gpus || gpu >= gpus + nr_gpus)
		return NVML_ERROR_INVALID_ARGUMENT;
	while (source_number_or(gpu, "hangs", 0))
		usleep(20000);
	return source_number_or(gpu, "lost", 0) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

const struct vgpu_type *find_type(uint id)
{
	uint i, j;

	for (i = 0; i < nr_gpus; i++)
		for (j = 0; j < gpus[i].nr_types; j++)
			if (gpus[i].types[j].id == id)
				return &gpus[i].types[j];
	return NULL;
}

/* Only vGPUs that a running VM has open are instances to NVML. */
nvmlReturn_t find_vgpu(uint instance, struct vgpu *out)
{
	struct vgpu all[MAX_PLACES];
	uint i, j, count;

	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	for (i = 0; i < nr_gpus; i++) {
		count = source_vgpus(&gpus[i], all, MAX_PLACES);
		for (j = 0; j < count; j++)
			if (all[j].instance == instance && all[j].open) {
				*out = all[j];
				return NVML_SUCCESS;
			}
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t give_text(const char *text, char *out, size_t size)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

/* NVML's habit: with too little room, say how much is needed. */
nvmlReturn_t give_ids(const uint *ids, uint have, uint *count, uint *out)
{
	uint room = *count;

	*count = have;
	if (have && (!out || room < have))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (have)
		memcpy(out, ids, have * sizeof(*ids));
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInitWithFlags(uint flags)
{
	(void)flags;
	return source_open();
}

API nvmlReturn_t nvmlInit_v2(void)
{
	return source_open();
}

API nvmlReturn_t nvmlInit(void)
{
	return source_open();
}

API nvmlReturn_t nvmlShutdown(void)
{
	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	source_close();
	return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
	if (result >= 0 && result < (int)(sizeof(messages) / sizeof(*messages)) && messages[result])
		return messages[result];
	return "Unknown Error";
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, uint size)
{
	return source_is_open() ? give_text(source_driver(), out, size) : NVML_ERROR_UNINITIALIZED;
}

/* As with the real library: the API's number before the driver's. */
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, uint size)
{
	char text[80];

	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	snprintf(text, sizeof(text), "12.%s", source_driver());
	return give_text(text, out, size);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = nr_gpus ? source_number_or(&gpus[0], "cuda_version", 0) : 0;
	return *version ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlReturn_t nvmlGetVgpuVersion(nvmlVgpuVersion_t *supported, nvmlVgpuVersion_t *current)
{
	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!supported || !current)
		return NVML_ERROR_INVALID_ARGUMENT;
	*supported = *current = vgpu_versions(&gpus[0]);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(uint *count)
{
	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = nr_gpus;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(uint index, nvmlDevice_t *device)
{
	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (index >= nr_gpus || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &gpus[index];
	return check_gpu(*device);
}

static nvmlReturn_t find_gpu(size_t field, const char *text, nvmlDevice_t *device)
{
	uint i;

	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!text || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (i = 0; i < nr_gpus; i++)
		if (!strcasecmp((char *)&gpus[i] + field, text)) {
			*device = &gpus[i];
			return check_gpu(*device);
		}
	return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	if (source_is_open() && uuid && device && (*device = mig_device_by_uuid(uuid)))
		return NVML_SUCCESS;
	return find_gpu(offsetof(struct gpu, uuid), uuid, device);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	return find_gpu(offsetof(struct gpu, serial), serial, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *device)
{
	uint domain, bus, slot, function;
	char bdf[32];

	if (!address || sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(bdf, sizeof(bdf), "%04x:%02x:%02x.%x", domain, bus, slot, function);
	return find_gpu(offsetof(struct gpu, bdf), bdf, device);
}
