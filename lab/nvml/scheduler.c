// SPDX-License-Identifier: Apache-2.0
/* How the vGPUs of a GPU share its time. The module keeps it; the limits are those that nvidia-smi vgpu -sc prints. */
#include <stdio.h>
#include <stdlib.h>
#include "lab.h"

enum { BEST_EFFORT = 1, EQUAL_SHARE, FIXED_SHARE };
enum { ARR_DEFAULT, ARR_DISABLE, ARR_ENABLE };
#define MIN_SLICE_NS 1000000u
#define MAX_SLICE_NS 30000000u
#define DEFAULT_SLICE_NS 2000000u
#define MIN_FREQUENCY 63
#define MAX_FREQUENCY 960
#define DEFAULT_FREQUENCY 480
#define MAX_FACTOR 60
#define DEFAULT_FACTOR 33
#define ENGINE_GRAPHICS 1
#define FIRST_WITH_VERSION_2 590

struct scheduler {
	uint policy, arr, factor, frequency, slice;
};

static struct scheduler current_of(const struct gpu *gpu)
{
	struct scheduler found = { 0 };
	char text[64];

	if (source_text(gpu, "scheduler", text, sizeof(text)))
		sscanf(text, "%u %u %u %u %u", &found.policy, &found.arr, &found.factor, &found.frequency, &found.slice);
	if (!found.policy)
		found = (struct scheduler){ BEST_EFFORT, ARR_DEFAULT, 0, 0, DEFAULT_SLICE_NS };
	return found;
}

static bool within(uint value, uint least, uint most)
{
	return value >= least && value <= most;
}

/* Zeroes stand for defaults. With adaptive round robin the slice follows from the frequency. */
static nvmlReturn_t set(struct gpu *gpu, struct scheduler wanted)
{
	char text[64];

	if (!within(wanted.policy, BEST_EFFORT, FIXED_SHARE) || wanted.arr > ARR_ENABLE ||
	    (wanted.policy == BEST_EFFORT && wanted.arr == ARR_ENABLE))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (wanted.arr == ARR_ENABLE) {
		wanted.factor = wanted.factor ? wanted.factor : DEFAULT_FACTOR;
		wanted.frequency = wanted.frequency ? wanted.frequency : DEFAULT_FREQUENCY;
		if (!within(wanted.factor, 1, MAX_FACTOR) || !within(wanted.frequency, MIN_FREQUENCY, MAX_FREQUENCY))
			return NVML_ERROR_INVALID_ARGUMENT;
		wanted.slice = 1000000000u / wanted.frequency;
	} else {
		wanted.slice = wanted.slice ? wanted.slice : DEFAULT_SLICE_NS;
		if (!within(wanted.slice, MIN_SLICE_NS, MAX_SLICE_NS))
			return NVML_ERROR_INVALID_ARGUMENT;
	}
	snprintf(text, sizeof(text), "%u %u %u %u %u", wanted.policy, wanted.arr, wanted.factor, wanted.frequency,
		 wanted.slice);
	return source_write(gpu, "scheduler", text);
}

#define CHECK_VGPU_HOST(gpu, pointer) \
	CHECK_GPU(gpu, pointer); \
	if (!(gpu)->nr_types) \
		return NVML_ERROR_NOT_SUPPORTED

API nvmlReturn_t nvmlDeviceGetVgpuSchedulerCapabilities(nvmlDevice_t gpu, nvmlVgpuSchedulerCapabilities_t *out)
{
	CHECK_VGPU_HOST(gpu, out);
	*out = (nvmlVgpuSchedulerCapabilities_t){ { BEST_EFFORT, EQUAL_SHARE, FIXED_SHARE }, MAX_SLICE_NS, MIN_SLICE_NS, 1,
						  MAX_FREQUENCY, MIN_FREQUENCY, MAX_FACTOR, 1 };
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetVgpuSchedulerState(nvmlDevice_t gpu, nvmlVgpuSchedulerState_t *out)
{
	struct scheduler now;

	CHECK_VGPU_HOST(gpu, out);
	now = current_of(gpu);
	if (now.arr == ARR_ENABLE)
		*out = (nvmlVgpuSchedulerState_t){ now.policy, now.arr, now.factor, now.slice };
	else
		*out = (nvmlVgpuSchedulerState_t){ now.policy, now.arr, now.slice, 0 };
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetVgpuSchedulerState(nvmlDevice_t gpu, const nvmlVgpuSchedulerState_t *wanted)
{
	CHECK_VGPU_HOST(gpu, wanted);
	if (wanted->arrMode == ARR_ENABLE)
		return set(gpu, (struct scheduler){ wanted->schedulerPolicy, ARR_ENABLE, wanted->avgFactor, wanted->last, 0 });
	return set(gpu, (struct scheduler){ wanted->schedulerPolicy, wanted->arrMode, 0, 0, wanted->avgFactor });
}

/* The second version of the calls came with API 13; an older driver's library lacks them. */
#define CHECK_NEW(state) \
	do { \
		if (atoi(source_driver()) < FIRST_WITH_VERSION_2) \
			return NVML_ERROR_FUNCTION_NOT_FOUND; \
		if ((state)->engineId != ENGINE_GRAPHICS) \
			return NVML_ERROR_INVALID_ARGUMENT; \
	} while (0)

API nvmlReturn_t nvmlDeviceGetVgpuSchedulerState_v2(nvmlDevice_t gpu, nvmlVgpuSchedulerState_v2_t *out)
{
	struct scheduler now;

	CHECK_VGPU_HOST(gpu, out);
	CHECK_NEW(out);
	now = current_of(gpu);
	*out = (nvmlVgpuSchedulerState_v2_t){ ENGINE_GRAPHICS, now.policy, now.arr == ARR_ENABLE ? now.factor : 0, now.slice };
	return NVML_SUCCESS;
}

/* Adaptive round robin is always on here; best effort knows neither factor nor frequency. */
API nvmlReturn_t nvmlDeviceSetVgpuSchedulerState_v2(nvmlDevice_t gpu, const nvmlVgpuSchedulerState_v2_t *wanted)
{
	CHECK_VGPU_HOST(gpu, wanted);
	CHECK_NEW(wanted);
	if (wanted->schedulerPolicy == BEST_EFFORT)
		return set(gpu, (struct scheduler){ BEST_EFFORT, ARR_DEFAULT, 0, 0, 0 });
	return set(gpu, (struct scheduler){ wanted->schedulerPolicy, ARR_ENABLE, wanted->avgFactor, wanted->last, 0 });
}
