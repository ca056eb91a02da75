// SPDX-License-Identifier: Apache-2.0
/* MIG devices: what a CUDA program sees of a compute instance. Their handles are nvmlDevice_t like those of GPUs. */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "lab.h"

#define MIG_DEVICES (MAX_INSTANCES * 2)

static struct compute_instance devices[MAX_GPUS][MIG_DEVICES];

/* The compute instance behind a handle; NULL for the handle of a GPU. */
struct compute_instance *mig_device(const void *device)
{
	struct compute_instance *first = &devices[0][0], *mig = (struct compute_instance *)device;

	return mig >= first && mig < first + MAX_GPUS * MIG_DEVICES && mig->gpu ? mig : NULL;
}

static nvmlDevice_t handle(struct gpu *gpu, const struct mig_state *state, uint at)
{
	struct compute_instance *mig = &devices[gpu->index][at];

	*mig = (struct compute_instance){ gpu, state->compute[at].gpu_instance, state->compute[at].id };
	return (nvmlDevice_t)mig;
}

/* Where a MIG device stands in the state of its GPU. */
static nvmlReturn_t find(const struct compute_instance *mig, struct mig_state *state, uint *at)
{
	nvmlReturn_t ret = check_gpu(mig->gpu);

	if (ret != NVML_SUCCESS)
		return ret;
	mig_read(mig->gpu, state);
	for (*at = 0; *at < state->nr_compute; ++*at)
		if (state->compute[*at].gpu_instance == mig->gpu_instance && state->compute[*at].id == mig->id)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_FOUND;
}

nvmlDevice_t mig_device_by_uuid(const char *uuid)
{
	struct mig_state state;
	uint i, at;

	for (i = 0; i < nr_gpus; i++) {
		mig_read(&gpus[i], &state);
		for (at = 0; at < state.nr_compute; at++)
			if (!strncasecmp(uuid, "MIG-", 4) && !strcasecmp(uuid + 4, state.compute[at].uuid))
				return handle(&gpus[i], &state, at);
	}
	return NULL;
}

nvmlReturn_t mig_device_uuid(const struct compute_instance *mig, char *out, size_t size)
{
	struct mig_state state;
	char text[48];
	uint at;
	nvmlReturn_t ret = find(mig, &state, &at);

	if (ret != NVML_SUCCESS)
		return ret;
	snprintf(text, sizeof(text), "MIG-%s", state.compute[at].uuid);
	return give_text(text, out, size);
}

static nvmlReturn_t attributes(const struct compute_instance *mig, nvmlDeviceAttributes_t *out, char *name, size_t size)
{
	const struct mig_profile *profile;
	struct mig_state state;
	uint at, slices;
	nvmlReturn_t ret = find(mig, &state, &at);

	if (ret != NVML_SUCCESS)
		return ret;
	profile = mig_profile(mig->gpu, state.gpu[mig_find(&state, mig->gpu_instance)].profile);
	slices = compute_slices(state.compute[at].profile);
	*out = (nvmlDeviceAttributes_t){ profile->sms / profile->slices * slices, profile->copy_engines, profile->decoders,
					 profile->encoders, profile->jpegs, profile->ofas, profile->slices, slices,
					 profile->memory_mib };
	if (slices == profile->slices)
		snprintf(name, size, "%s MIG %s", mig->gpu->name, profile->name);
	else
		snprintf(name, size, "%s MIG %uc.%s", mig->gpu->name, slices, profile->name);
	return NVML_SUCCESS;
}

nvmlReturn_t mig_device_name(const struct compute_instance *mig, char *out, size_t size)
{
	nvmlDeviceAttributes_t unused;
	char name[128];
	nvmlReturn_t ret = attributes(mig, &unused, name, sizeof(name));

	return ret == NVML_SUCCESS ? give_text(name, out, size) : ret;
}

ull mig_device_memory_mib(const struct compute_instance *mig)
{
	nvmlDeviceAttributes_t found = { 0 };
	char name[128];

	attributes(mig, &found, name, sizeof(name));
	return found.memorySizeMB;
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	const struct compute_instance *mig = mig_device(device);
	char name[128];

	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	return mig ? attributes(mig, out, name, sizeof(name)) : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, uint *is)
{
	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!is)
		return NVML_ERROR_INVALID_ARGUMENT;
	*is = mig_device(device) != NULL;
	return *is ? NVML_SUCCESS : check_gpu(device);
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t gpu, uint index, nvmlDevice_t *device)
{
	struct mig_state state;

	CHECK_GPU(gpu, device);
	mig_read(gpu, &state);
	if (index >= state.nr_compute)
		return NVML_ERROR_NOT_FOUND;
	*device = handle(gpu, &state, index);
	return NVML_SUCCESS;
}

#define MIG_CALL(call, type, expression) \
	API nvmlReturn_t call(nvmlDevice_t device, type *out) \
	{ \
		struct compute_instance *mig = mig_device(device); \
		if (!source_is_open()) \
			return NVML_ERROR_UNINITIALIZED; \
		if (!mig || !out) \
			return NVML_ERROR_INVALID_ARGUMENT; \
		*out = (expression); \
		return NVML_SUCCESS; \
	}

MIG_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t, mig->gpu)
MIG_CALL(nvmlDeviceGetGpuInstanceId, uint, mig->gpu_instance)
MIG_CALL(nvmlDeviceGetComputeInstanceId, uint, mig->id)
