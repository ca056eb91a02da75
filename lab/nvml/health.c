// SPDX-License-Identifier: Apache-2.0
/* What a GPU measures. Memory follows the vGPUs in use; "sensors" says otherwise. */
#include <string.h>
#include "lab.h"

#define MIB (1024ULL * 1024)

static ull memory_used(struct gpu *gpu)
{
	struct vgpu all[MAX_PLACES];
	uint i, count = source_vgpus(gpu, all, MAX_PLACES);
	ull used = 0;

	for (i = 0; i < count; i++)
		if (all[i].open)
			used += all[i].type->fb_mib * MIB;
	return used;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t *memory)
{
	if (mig_device(gpu) && memory) {
		memory->total = memory->free = mig_device_memory_mib(mig_device(gpu)) * MIB;
		memory->used = 0;
		return NVML_SUCCESS;
	}
	CHECK_GPU(gpu, memory);
	memory->total = source_number_or(gpu, "memory_mib", 0) * MIB;
	memory->used = memory_used(gpu);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t *memory)
{
	CHECK_GPU(gpu, memory);
	if (memory->version != NVML_VERSION(*memory, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory->total = source_number_or(gpu, "memory_mib", 0) * MIB;
	memory->reserved = 0;
	memory->used = memory_used(gpu);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t *rates)
{
	struct mig_state state;

	CHECK_GPU(gpu, rates);
	mig_read(gpu, &state);
	if (state.current)
		return NVML_ERROR_NOT_SUPPORTED;
	rates->gpu = gpu_busy(gpu);
	rates->memory = source_number_or(gpu, "memory_utilization", rates->gpu / 2);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, uint sensor, uint *celsius)
{
	CHECK_GPU(gpu, celsius);
	if (sensor)
		return NVML_ERROR_INVALID_ARGUMENT;
	*celsius = source_number_or(gpu, "temperature_c", 34);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t gpu, nvmlTemperature_t *temperature)
{
	CHECK_GPU(gpu, temperature);
	if (temperature->version != NVML_VERSION(*temperature, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	temperature->temperature = source_number_or(gpu, "temperature_c", 34);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, uint *milliwatts)
{
	CHECK_GPU(gpu, milliwatts);
	*milliwatts = source_number_or(gpu, "power_mw", 28000);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t gpu, uint *least, uint *most)
{
	long long limit;

	CHECK_GPU(gpu, least && most);
	if (!source_number(gpu, "power_limit_mw", &limit))
		return NVML_ERROR_NOT_SUPPORTED;
	*most = limit;
	*least = source_number_or(gpu, "power_limit_min_mw", limit / 2);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t gpu, uint *current, uint *pending)
{
	CHECK_GPU(gpu, current && pending);
	if (!source_number_or(gpu, "ecc", 0))
		return NVML_ERROR_NOT_SUPPORTED;
	*current = !source_number_or(gpu, "ecc_off", 0);
	*pending = !source_number_or(gpu, "ecc_off_pending", 0);
	return NVML_SUCCESS;
}

/* It is so after the GPU's next reset. */
API nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t gpu, uint mode)
{
	nvmlReturn_t ret = check_gpu(gpu);

	if (ret != NVML_SUCCESS)
		return ret;
	if (!source_number_or(gpu, "ecc", 0))
		return NVML_ERROR_NOT_SUPPORTED;
	return mode > 1 ? NVML_ERROR_INVALID_ARGUMENT : source_write(gpu, "ecc_mode", mode ? "1" : "0");
}

/* error: 0 corrected, 1 uncorrected; both counters (volatile, aggregate) are the same here. */
/* A GPU without "fabric_state" has no fabric. */
API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t gpu, nvmlGpuFabricInfo_v2_t *info)
{
	long long state;

	CHECK_GPU(gpu, info);
	if (info->version != NVML_VERSION(*info, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (!source_number(gpu, "fabric_state", &state))
		return NVML_ERROR_NOT_SUPPORTED;
	memset(info->clusterUuid, 0, sizeof(info->clusterUuid));
	info->cliqueId = 0;
	info->state = state;
	info->status = source_number_or(gpu, "fabric_status", NVML_SUCCESS);
	info->healthMask = source_number_or(gpu, "fabric_health", 0);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t gpu, uint error, uint counter, ull *count)
{
	CHECK_GPU(gpu, count);
	if (!source_number_or(gpu, "ecc", 0))
		return NVML_ERROR_NOT_SUPPORTED;
	if (error > 1 || counter > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = source_number_or(gpu, error ? "ecc_uncorrected" : "ecc_corrected", 0);
	return NVML_SUCCESS;
}

static nvmlReturn_t no_processes(struct gpu *gpu, uint *count)
{
	CHECK_GPU(gpu, count);
	*count = 0;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, uint *count, void *processes)
{
	(void)processes;
	return no_processes(gpu, count);
}

API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t gpu, uint *count, void *processes)
{
	(void)processes;
	return no_processes(gpu, count);
}
