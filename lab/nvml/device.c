// SPDX-License-Identifier: Apache-2.0
/* Who a GPU is and in which modes it runs. */
#include <stdio.h>
#include <string.h>
#include "lab.h"

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t gpu, char *out, uint size)
{
	if (mig_device(gpu))
		return mig_device_name(mig_device(gpu), out, size);
	CHECK_GPU(gpu, out);
	return give_text(gpu->name, out, size);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t gpu, char *out, uint size)
{
	if (mig_device(gpu))
		return mig_device_uuid(mig_device(gpu), out, size);
	CHECK_GPU(gpu, out);
	return give_text(gpu->uuid, out, size);
}

API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t gpu, char *out, uint size)
{
	CHECK_GPU(gpu, out);
	return give_text(gpu->serial, out, size);
}

API nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t gpu, char *out, uint size)
{
	char text[32];

	CHECK_GPU(gpu, out);
	snprintf(text, sizeof(text), "900-%05u-0000-000", gpu->device);
	return give_text(text, out, size);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, nvmlPciInfo_t *info)
{
	uint function = 0;

	CHECK_GPU(gpu, info);
	memset(info, 0, sizeof(*info));
	sscanf(gpu->bdf, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function);
	info->pciDeviceId = gpu->device << 16 | 0x10de;
	info->pciSubSystemId = gpu->subsystem << 16 | 0x10de;
	snprintf(info->busId, sizeof(info->busId), "%08X:%02X:%02X.%X", info->domain, info->bus, info->device, function);
	snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "%04X:%02X:%02X.%X", info->domain & 0xffff,
		 info->bus & 0xff, info->device & 0xff, function & 0xf);
	return NVML_SUCCESS;
}

#define NUMBER_CALL(call, type, key) \
	API nvmlReturn_t call(nvmlDevice_t gpu, type *out) \
	{ \
		long long value; \
		CHECK_GPU(gpu, out); \
		if (!source_number(gpu, key, &value)) \
			return NVML_ERROR_NOT_SUPPORTED; \
		*out = value; \
		return NVML_SUCCESS; \
	}

NUMBER_CALL(nvmlDeviceGetModuleId, uint, "module_id")
NUMBER_CALL(nvmlDeviceGetMinorNumber, uint, "minor")
NUMBER_CALL(nvmlDeviceGetPowerManagementDefaultLimit, uint, "power_limit_mw")

/* The limit that was set, else the board's own. */
API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t gpu, uint *milliwatts)
{
	long long limit;

	CHECK_GPU(gpu, milliwatts);
	if (!source_number(gpu, "power_limit_mw", &limit))
		return NVML_ERROR_NOT_SUPPORTED;
	*milliwatts = source_number_or(gpu, "power_limit_set_mw", 0);
	*milliwatts = *milliwatts ? *milliwatts : limit;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t gpu, uint *milliwatts)
{
	return nvmlDeviceGetPowerManagementLimit(gpu, milliwatts);
}

API nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t gpu, uint milliwatts)
{
	uint least, most;
	nvmlReturn_t ret = nvmlDeviceGetPowerManagementLimitConstraints(gpu, &least, &most);
	char text[16];

	if (ret != NVML_SUCCESS)
		return ret;
	if (milliwatts < least || milliwatts > most)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(text, sizeof(text), "%u", milliwatts);
	return source_write(gpu, "power_limit", text);
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t gpu, uint *index)
{
	CHECK_GPU(gpu, index);
	*index = gpu->index;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t gpu, int *node)
{
	CHECK_GPU(gpu, node);
	*node = source_number_or(gpu, "numa", -1);
	return *node < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* Architectures in NVML's numbering, from 3 on. */
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t gpu, uint *architecture)
{
	static const char *const names[] = { "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell" };
	char text[32] = "";
	uint i;

	CHECK_GPU(gpu, architecture);
	source_text(gpu, "arch", text, sizeof(text));
	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i], text)) {
			*architecture = i == 7 ? 10 : i + 3;
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t gpu, uint *brand)
{
	CHECK_GPU(gpu, brand);
	*brand = strncmp(gpu->name, "Tesla", 5) ? 14 : 2;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t gpu, uint *mode)
{
	CHECK_GPU(gpu, mode);
	*mode = source_number_or(gpu, "persistence", 0);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t gpu, uint mode)
{
	nvmlReturn_t ret = check_gpu(gpu);

	if (ret != NVML_SUCCESS)
		return ret;
	return mode > 1 ? NVML_ERROR_INVALID_ARGUMENT : source_write(gpu, "persistence", mode ? "1" : "0");
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t gpu, uint *mode)
{
	CHECK_GPU(gpu, mode);
	*mode = 0;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t gpu, uint *mode)
{
	CHECK_GPU(gpu, mode);
	*mode = source_number_or(gpu, "vgpu_capable", 0) ? 3 : 0;	/* host vGPU, none */
	return NVML_SUCCESS;
}

/* 0: vGPUs live on the physical function, 1: on virtual functions. */
API nvmlReturn_t nvmlDeviceGetHostVgpuMode(nvmlDevice_t gpu, uint *mode)
{
	CHECK_GPU(gpu, mode);
	if (!source_number_or(gpu, "vgpu_capable", 0))
		return NVML_ERROR_NOT_SUPPORTED;
	*mode = gpu->vfs;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetVgpuHeterogeneousMode(nvmlDevice_t gpu, nvmlVgpuHeterogeneousMode_t *mode)
{
	CHECK_GPU(gpu, mode);
	if (mode->version != NVML_VERSION(*mode, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!gpu->vfs)
		return NVML_ERROR_NOT_SUPPORTED;
	mode->mode = source_number_or(gpu, "heterogeneous", 0);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetVgpuHeterogeneousMode(nvmlDevice_t gpu, const nvmlVgpuHeterogeneousMode_t *mode)
{
	CHECK_GPU(gpu, mode);
	if (mode->version != NVML_VERSION(*mode, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (mode->mode > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!gpu->vfs)
		return NVML_ERROR_NOT_SUPPORTED;
	return source_write(gpu, "heterogeneous", mode->mode ? "1" : "0");
}

/* Capabilities in NVML's numbering; those that need a number of the hardware are unknown here. */
API nvmlReturn_t nvmlDeviceGetVgpuCapabilities(nvmlDevice_t gpu, uint capability, uint *out)
{
	CHECK_GPU(gpu, out);
	switch (capability) {
	case 0:		/* fractional multi-vGPU */
	case 1:		/* types of one size mixed */
	case 5:		/* state that moves while its VM runs */
		*out = 1;
		return NVML_SUCCESS;
	case 2:		/* sizes mixed */
	case 9:		/* placements of equal sizes */
		*out = gpu->vfs;
		return NVML_SUCCESS;
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}
