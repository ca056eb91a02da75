// SPDX-License-Identifier: Apache-2.0
/* Compute instances of a GPU instance: profiles, places, life. */
#include <stdio.h>
#include <string.h>
#include "lab.h"

static struct compute_instance instances[MAX_GPUS][MAX_INSTANCES][MAX_COMPUTES];

/* Slices of NVML's compute instance profiles, whose numbers are their ids too; 0: not on these GPUs. */
uint compute_slices(uint profile)
{
	static const uint slices[] = { 1, 2, 3, 4, 7, 0, 0, 1 };

	return profile < sizeof(slices) / sizeof(*slices) ? slices[profile] : 0;
}

/* Where instances of so many slices may begin; three begin where four would. */
static uint starts_of(const struct mig_profile *profile, uint slices, uint *starts)
{
	uint step = slices == 3 ? 4 : slices, count = 0, start;

	for (start = 0; start + slices <= profile->slices; start += step)
		starts[count++] = start;
	return count;
}

#define GI_HEAD(instance, pointer) \
	const struct mig_profile *profile; \
	struct mig_state state; \
	uint at; \
	nvmlReturn_t ret = check_gpu_instance(instance, &state, &at); \
	if (ret != NVML_SUCCESS) \
		return ret; \
	if (!(pointer)) \
		return NVML_ERROR_INVALID_ARGUMENT; \
	profile = mig_profile(instance->gpu, state.gpu[at].profile)

static nvmlReturn_t profile_info(const struct mig_profile *profile, uint number, uint engines,
				 nvmlComputeInstanceProfileInfo_t *info)
{
	uint slices = compute_slices(number), starts[MAX_STARTS];

	if (number > 8 || engines)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!slices || slices > profile->slices || number == 7 || (slices == 3 && profile->slices == 4))
		return NVML_ERROR_NOT_SUPPORTED;
	info->id = number;
	info->sliceCount = slices;
	info->instanceCount = starts_of(profile, slices, starts);
	info->multiprocessorCount = profile->sms / profile->slices * slices;
	info->sharedCopyEngineCount = profile->copy_engines;
	info->sharedDecoderCount = profile->decoders;
	info->sharedEncoderCount = profile->encoders;
	info->sharedJpegCount = profile->jpegs;
	info->sharedOfaCount = profile->ofas;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, uint number, uint engines,
							      nvmlComputeInstanceProfileInfo_t *info)
{
	GI_HEAD(instance, info);
	return profile_info(profile, number, engines, info);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, uint number, uint engines,
							       nvmlComputeInstanceProfileInfo_v2_t *info)
{
	GI_HEAD(instance, info);
	if (info->version != NVML_VERSION(*info, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	ret = profile_info(profile, number, engines, &info->info);
	if (ret == NVML_SUCCESS && info->info.sliceCount == profile->slices)
		snprintf(info->name, sizeof(info->name), "MIG %s", profile->name);
	else if (ret == NVML_SUCCESS)
		snprintf(info->name, sizeof(info->name), "MIG %uc.%s", info->info.sliceCount, profile->name);
	return ret;
}

static bool is_free(const struct mig_state *state, uint gpu_instance, uint start, uint slices)
{
	uint i;

	for (i = 0; i < state->nr_compute; i++)
		if (state->compute[i].gpu_instance == gpu_instance &&
		    start < state->compute[i].start + compute_slices(state->compute[i].profile) &&
		    state->compute[i].start < start + slices)
			return false;
	return true;
}

static nvmlReturn_t places(nvmlGpuInstance_t instance, uint number, nvmlComputeInstancePlacement_t *out, uint *count,
			   bool free_only)
{
	uint slices = compute_slices(number), starts[MAX_STARTS], have, i;

	GI_HEAD(instance, count);
	if (!slices || slices > profile->slices)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	have = starts_of(profile, slices, starts);
	for (i = 0; i < have; i++) {
		if (free_only && !is_free(&state, instance->id, starts[i], slices))
			continue;
		if (out)
			out[*count] = (nvmlComputeInstancePlacement_t){ starts[i], slices };
		++*count;
	}
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, uint number,
								     nvmlComputeInstancePlacement_t *out, uint *count)
{
	return places(instance, number, out, count, false);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, uint number, uint *count)
{
	return places(instance, number, NULL, count, true);
}

static nvmlComputeInstance_t handle(nvmlGpuInstance_t gpu_instance, uint id)
{
	struct gpu *gpu = gpu_instance->gpu;
	nvmlComputeInstance_t instance = &instances[gpu->index][gpu_instance->id % MAX_INSTANCES][id % MAX_COMPUTES];

	*instance = (struct compute_instance){ gpu, gpu_instance->id, id };
	return instance;
}

static nvmlReturn_t create(nvmlGpuInstance_t instance, uint number, int start, nvmlComputeInstance_t *out)
{
	char text[48];
	uint made = 0;

	GI_HEAD(instance, out);
	if (number != 7 && compute_slices(number) > profile->slices)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(text, sizeof(text), "ci %u %u %d", instance->id, number, start);
	ret = mig_command(instance->gpu, text, &made);
	if (ret == NVML_SUCCESS)
		*out = handle(instance, made);
	return ret;
}

API nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, uint number, nvmlComputeInstance_t *out)
{
	return create(instance, number, -1, out);
}

API nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, uint number,
								   const nvmlComputeInstancePlacement_t *place,
								   nvmlComputeInstance_t *out)
{
	if (!place || place->size != compute_slices(number) || place->start > MAX_COMPUTES)
		return NVML_ERROR_INVALID_ARGUMENT;
	return create(instance, number, place->start, out);
}

/* Where a compute instance stands in the state. */
static nvmlReturn_t check_compute(nvmlComputeInstance_t instance, struct mig_state *state, uint *at)
{
	const nvmlComputeInstance_t first = &instances[0][0][0];
	nvmlReturn_t ret;

	if (instance < first || instance >= first + MAX_GPUS * MAX_INSTANCES * MAX_COMPUTES || !instance->gpu)
		return NVML_ERROR_INVALID_ARGUMENT;
	ret = check_gpu(instance->gpu);
	if (ret != NVML_SUCCESS)
		return ret;
	mig_read(instance->gpu, state);
	for (*at = 0; *at < state->nr_compute; ++*at)
		if (state->compute[*at].gpu_instance == instance->gpu_instance && state->compute[*at].id == instance->id)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
	struct mig_state state;
	nvmlReturn_t ret;
	char text[48];
	uint at;

	ret = check_compute(instance, &state, &at);
	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(text, sizeof(text), "destroy %u %u", instance->gpu_instance, instance->id);
	return mig_command(instance->gpu, text, &at);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, uint number, nvmlComputeInstance_t *out,
						    uint *count)
{
	uint i;

	GI_HEAD(instance, out && count);
	if (!compute_slices(number) || compute_slices(number) > profile->slices)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	for (i = 0; i < state.nr_compute; i++)
		if (state.compute[i].gpu_instance == instance->id && state.compute[i].profile == number)
			out[(*count)++] = handle(instance, state.compute[i].id);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, uint id, nvmlComputeInstance_t *out)
{
	struct mig_state state;
	nvmlReturn_t ret;
	uint at;

	ret = check_gpu_instance(instance, &state, &at);
	if (ret != NVML_SUCCESS || !out)
		return out ? ret : NVML_ERROR_INVALID_ARGUMENT;
	*out = handle(instance, id);
	return check_compute(*out, &state, &at);
}

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
	struct mig_state state;
	nvmlReturn_t ret;
	uint at;

	ret = check_compute(instance, &state, &at);
	if (ret != NVML_SUCCESS || !info)
		return info ? ret : NVML_ERROR_INVALID_ARGUMENT;
	info->device = instance->gpu;
	info->gpuInstance = mig_gpu_instance(instance->gpu, instance->gpu_instance);
	info->id = instance->id;
	info->profileId = state.compute[at].profile;
	info->placement.start = state.compute[at].start;
	info->placement.size = compute_slices(info->profileId);
	return NVML_SUCCESS;
}
