// SPDX-License-Identifier: Apache-2.0
/* The MIG mode, GPU instance profiles and GPU instances. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lab.h"

#define NVML_GPU_INSTANCE_PROFILE_COUNT 0x12
#define KEPT_MODES "/var/lib/vgpu-lab/mig"

static struct gpu_instance instances[MAX_GPUS][MAX_INSTANCES];

void mig_read(const struct gpu *gpu, struct mig_state *state)
{
	char path[128], text[8192], *line;

	memset(state, 0, sizeof(*state));
	snprintf(path, sizeof(path), "/sys/kernel/vgpu_lab/gpus/%s/mig", gpu->dir);
	source_read(path, text, sizeof(text));
	for (line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		sscanf(line, "mode %u %u", &state->current, &state->pending);
		if (state->nr_left < MAX_PROFILES)
			state->nr_left += sscanf(line, "left %u %u", &state->left[state->nr_left].profile,
						 &state->left[state->nr_left].count) == 2;
		if (state->nr_gpu < MAX_INSTANCES)
			state->nr_gpu += sscanf(line, "gi %u %u %u", &state->gpu[state->nr_gpu].id,
						&state->gpu[state->nr_gpu].profile,
						&state->gpu[state->nr_gpu].start) == 3;
		if (state->nr_compute < MAX_INSTANCES * 2)
			state->nr_compute += sscanf(line, "ci %u %u %u %u %39s",
						    &state->compute[state->nr_compute].gpu_instance,
						    &state->compute[state->nr_compute].id,
						    &state->compute[state->nr_compute].profile,
						    &state->compute[state->nr_compute].start,
						    state->compute[state->nr_compute].uuid) == 5;
	}
}

/* The id of what a command created goes to *made. */
nvmlReturn_t mig_command(struct gpu *gpu, const char *text, uint *made)
{
	char answer[8192], *line;
	nvmlReturn_t ret = source_command(gpu, "mig_command", text, "mig", answer, sizeof(answer));

	line = ret == NVML_SUCCESS ? strstr(answer, "made ") : NULL;
	if (line)
		*made = strtoul(line + 5, NULL, 10);
	return ret;
}

const struct mig_profile *mig_profile(const struct gpu *gpu, uint id)
{
	uint i;

	for (i = 0; i < gpu->nr_profiles; i++)
		if (gpu->profiles[i].id == id)
			return &gpu->profiles[i];
	return NULL;
}

/* Where a GPU instance stands in the state; its number of instances where it does not. */
uint mig_find(const struct mig_state *state, uint id)
{
	uint at;

	for (at = 0; at < state->nr_gpu; at++)
		if (state->gpu[at].id == id)
			break;
	return at;
}

nvmlGpuInstance_t mig_gpu_instance(struct gpu *gpu, uint id)
{
	nvmlGpuInstance_t instance = &instances[gpu->index][id % MAX_INSTANCES];

	instance->gpu = gpu;
	instance->id = id;
	return instance;
}

nvmlReturn_t check_gpu_instance(nvmlGpuInstance_t instance, struct mig_state *state, uint *at)
{
	nvmlReturn_t ret;

	if (instance < &instances[0][0] || instance >= &instances[0][0] + MAX_GPUS * MAX_INSTANCES || !instance->gpu)
		return NVML_ERROR_INVALID_ARGUMENT;
	ret = check_gpu(instance->gpu);
	if (ret != NVML_SUCCESS)
		return ret;
	mig_read(instance->gpu, state);
	*at = mig_find(state, instance->id);
	return *at < state->nr_gpu ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

#define CHECK_MIG(gpu, pointer) \
	CHECK_GPU(gpu, pointer); \
	if (!(gpu)->nr_profiles) \
		return NVML_ERROR_NOT_SUPPORTED

/* With MIG switched on: what is asked about instances. */
#define CHECK_MIG_ON(gpu, pointer, state) \
	CHECK_MIG(gpu, pointer); \
	mig_read(gpu, state); \
	if (!(state)->current) \
		return NVML_ERROR_NOT_SUPPORTED

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, uint *current, uint *pending)
{
	struct mig_state state;

	CHECK_MIG(gpu, current && pending);
	mig_read(gpu, &state);
	*current = state.current;
	*pending = state.pending;
	return NVML_SUCCESS;
}

/* What the board's InfoROM keeps is a file here, which the loader reads at the next boot. */
static void keep_mode(const struct gpu *gpu, uint mode)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", KEPT_MODES, gpu->bdf);
	if (mode)
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	else
		unlink(path);
}

/* A mode that could not be activated stays pending where it takes a reset, and is forgotten elsewhere. */
API nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t gpu, uint mode, nvmlReturn_t *activation)
{
	char text[32];
	uint unused;

	CHECK_MIG(gpu, activation);
	if (mode > 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(text, sizeof(text), "mode %u", mode);
	*activation = mig_command(gpu, text, &unused);
	if (*activation != NVML_SUCCESS && *activation != NVML_ERROR_IN_USE)
		return *activation;
	if (!gpu->mig_reset)
		return *activation;
	keep_mode(gpu, mode);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t gpu, uint *count)
{
	uint i;

	CHECK_GPU(gpu, count);
	*count = 0;
	for (i = 0; i < gpu->nr_profiles; i++)
		if (gpu->profiles[i].max > *count)
			*count = gpu->profiles[i].max;
	return NVML_SUCCESS;
}

static void fill_profile(const struct mig_profile *profile, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	info->id = profile->id;
	info->isP2pSupported = 0;
	info->sliceCount = profile->slices;
	info->instanceCount = profile->max;
	info->multiprocessorCount = profile->sms;
	info->copyEngineCount = profile->copy_engines;
	info->decoderCount = profile->decoders;
	info->encoderCount = profile->encoders;
	info->jpegCount = profile->jpegs;
	info->ofaCount = profile->ofas;
	info->memorySizeMB = profile->memory_mib;
	snprintf(info->name, sizeof(info->name), "MIG %s", profile->name);
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t gpu, uint number, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	uint i;

	CHECK_MIG(gpu, info);
	if (info->version != NVML_VERSION(*info, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (number >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (i = 0; i < gpu->nr_profiles; i++)
		if (gpu->profiles[i].number == number) {
			fill_profile(&gpu->profiles[i], info);
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t gpu, uint id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
	const struct mig_profile *profile;

	CHECK_MIG(gpu, info);
	if (info->version != NVML_VERSION(*info, 2))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	profile = mig_profile(gpu, id);
	if (!profile)
		return NVML_ERROR_NOT_SUPPORTED;
	fill_profile(profile, info);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t gpu, uint number, nvmlGpuInstanceProfileInfo_t *info)
{
	nvmlGpuInstanceProfileInfo_v2_t full = { .version = NVML_VERSION(full, 2) };
	nvmlReturn_t ret;

	CHECK_GPU(gpu, info);
	ret = nvmlDeviceGetGpuInstanceProfileInfoV(gpu, number, &full);
	if (ret == NVML_SUCCESS) {
		memcpy(info, &full.id, offsetof(nvmlGpuInstanceProfileInfo_t, memorySizeMB));
		info->memorySizeMB = full.memorySizeMB;
	}
	return ret;
}

/* All legal places of a profile, taken or not, whether MIG is on or not. */
API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t gpu, uint id,
							       nvmlGpuInstancePlacement_t *places, uint *count)
{
	const struct mig_profile *profile;
	uint i;

	CHECK_MIG(gpu, count);
	profile = mig_profile(gpu, id);
	if (!profile)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = profile->nr_starts;
	for (i = 0; places && i < profile->nr_starts; i++) {
		places[i].start = profile->starts[i];
		places[i].size = profile->size;
	}
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t gpu, uint id, uint *count)
{
	struct mig_state state;
	uint i;

	CHECK_MIG_ON(gpu, count, &state);
	for (i = 0; i < state.nr_left; i++)
		if (state.left[i].profile == id) {
			*count = state.left[i].count;
			return NVML_SUCCESS;
		}
	return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t create(nvmlDevice_t gpu, uint profile, int start, nvmlGpuInstance_t *instance)
{
	nvmlReturn_t ret;
	char text[48];
	uint made = 0;

	CHECK_MIG(gpu, instance);
	snprintf(text, sizeof(text), "gi %u %d", profile, start);
	ret = mig_command(gpu, text, &made);
	if (ret == NVML_SUCCESS)
		*instance = mig_gpu_instance(gpu, made);
	return ret;
}

API nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t gpu, uint profile, nvmlGpuInstance_t *instance)
{
	return create(gpu, profile, -1, instance);
}

API nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t gpu, uint id,
							  const nvmlGpuInstancePlacement_t *place,
							  nvmlGpuInstance_t *instance)
{
	const struct mig_profile *profile;

	CHECK_MIG(gpu, place && instance);
	profile = mig_profile(gpu, id);
	if (!profile || place->size != profile->size || place->start > 64)
		return NVML_ERROR_INVALID_ARGUMENT;
	return create(gpu, id, place->start, instance);
}

API nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
	struct mig_state state;
	nvmlReturn_t ret;
	char text[32];
	uint at;

	ret = check_gpu_instance(instance, &state, &at);
	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(text, sizeof(text), "destroy %u", instance->id);
	return mig_command(instance->gpu, text, &at);
}

/* The caller's array has room for as many as the profile allows. */
API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t gpu, uint profile, nvmlGpuInstance_t *out, uint *count)
{
	struct mig_state state;
	uint i;

	CHECK_MIG_ON(gpu, out && count, &state);
	if (!mig_profile(gpu, profile))
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	for (i = 0; i < state.nr_gpu; i++)
		if (state.gpu[i].profile == profile)
			out[(*count)++] = mig_gpu_instance(gpu, state.gpu[i].id);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t gpu, uint id, nvmlGpuInstance_t *instance)
{
	struct mig_state state;

	CHECK_MIG_ON(gpu, instance, &state);
	if (mig_find(&state, id) == state.nr_gpu)
		return NVML_ERROR_NOT_FOUND;
	*instance = mig_gpu_instance(gpu, id);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
	struct mig_state state;
	nvmlReturn_t ret;
	uint at;

	ret = check_gpu_instance(instance, &state, &at);
	if (ret != NVML_SUCCESS || !info)
		return info ? ret : NVML_ERROR_INVALID_ARGUMENT;
	info->device = instance->gpu;
	info->id = instance->id;
	info->profileId = state.gpu[at].profile;
	info->placement.start = state.gpu[at].start;
	info->placement.size = mig_profile(instance->gpu, info->profileId)->size;
	return NVML_SUCCESS;
}
