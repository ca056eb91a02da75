// SPDX-License-Identifier: Apache-2.0
/* GPM: two samples and what happened between them. Hopper and newer. */
#include <stdlib.h>
#include "lab.h"

#define SUPPORT_VERSION 1
#define GPU_INSTANCE_NONE NO_ID
#define MAX_METRICS 477

enum { GRAPHICS = 1, SM = 2, OCCUPANCY = 3, TENSOR = 5, DRAM = 10 };

struct gpm_sample {
	struct gpu *gpu;
	uint gpu_instance;
};

static bool has_gpm(struct gpu *gpu)
{
	uint architecture;

	return nvmlDeviceGetArchitecture(gpu, &architecture) == NVML_SUCCESS && architecture >= 9;
}

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t gpu, nvmlGpmSupport_t *support)
{
	CHECK_GPU(gpu, support);
	if (support->version != SUPPORT_VERSION)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	support->supported = has_gpm(gpu);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleAlloc(struct gpm_sample **sample)
{
	*sample = calloc(1, sizeof(**sample));
	return *sample ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

API nvmlReturn_t nvmlGpmSampleFree(struct gpm_sample *sample)
{
	free(sample);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t gpu, struct gpm_sample *sample)
{
	CHECK_GPU(gpu, sample);
	if (!has_gpm(gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	*sample = (struct gpm_sample){ gpu, GPU_INSTANCE_NONE };
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t gpu, uint gpu_instance, struct gpm_sample *sample)
{
	struct mig_state state;
	uint i;

	CHECK_GPU(gpu, sample);
	if (!has_gpm(gpu))
		return NVML_ERROR_NOT_SUPPORTED;
	mig_read(gpu, &state);
	for (i = 0; i < state.nr_gpu; i++)
		if (state.gpu[i].id == gpu_instance) {
			*sample = (struct gpm_sample){ gpu, gpu_instance };
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request)
{
	uint i;

	if (!request || request->version != SUPPORT_VERSION || request->count > MAX_METRICS)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!request->first || !request->second || request->first->gpu != request->second->gpu)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (i = 0; i < request->count; i++) {
		nvmlGpmMetric_t *metric = &request->metrics[i];
		struct gpu *gpu = request->first->gpu;
		static const char *const keys[] = {
			[GRAPHICS] = "gpm_engine", [SM] = "gpm_sm", [OCCUPANCY] = "gpm_occupancy", [TENSOR] = "gpm_tensor",
			[DRAM] = "gpm_dram",
		};

		metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (metric->id >= sizeof(keys) / sizeof(*keys) || !keys[metric->id])
			continue;
		metric->value = source_number_or(gpu, keys[metric->id], gpu_busy(gpu));
		metric->nvmlReturn = NVML_SUCCESS;
	}
	return NVML_SUCCESS;
}
