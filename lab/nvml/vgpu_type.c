// SPDX-License-Identifier: Apache-2.0
/* vGPU types: which a GPU supports, which can be made now, and what each is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lab.h"

#define MIB (1024ULL * 1024)

API nvmlReturn_t nvmlDeviceGetSupportedVgpus(nvmlDevice_t gpu, uint *count, uint *out)
{
	uint ids[MAX_TYPES], i;

	CHECK_GPU(gpu, count);
	if (!gpu->nr_types)
		return NVML_ERROR_NOT_SUPPORTED;
	for (i = 0; i < gpu->nr_types; i++)
		ids[i] = gpu->types[i].id;
	return give_ids(ids, gpu->nr_types, count, out);
}

API nvmlReturn_t nvmlDeviceGetCreatableVgpus(nvmlDevice_t gpu, uint *count, uint *out)
{
	char path[128], text[4096], *line;
	uint ids[MAX_TYPES], have = 0;

	CHECK_GPU(gpu, count);
	if (!gpu->nr_types)
		return NVML_ERROR_NOT_SUPPORTED;
	snprintf(path, sizeof(path), "/sys/kernel/vgpu_lab/gpus/%s/creatable", gpu->dir);
	source_read(path, text, sizeof(text));
	for (line = text; line && *line && have < MAX_TYPES; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (*line)
			ids[have++] = strtoul(line, NULL, 10);
	}
	return give_ids(ids, have, count, out);
}

#define TYPE_HEAD(id, pointer) \
	const struct vgpu_type *type; \
	if (!source_is_open()) \
		return NVML_ERROR_UNINITIALIZED; \
	type = find_type(id); \
	if (!type || !(pointer)) \
		return NVML_ERROR_INVALID_ARGUMENT

#define TYPE_NUMBER(call, ctype, expression) \
	API nvmlReturn_t call(uint id, ctype *out) \
	{ \
		TYPE_HEAD(id, out); \
		*out = (expression); \
		return NVML_SUCCESS; \
	}

TYPE_NUMBER(nvmlVgpuTypeGetFramebufferSize, ull, type->fb_mib * MIB)
TYPE_NUMBER(nvmlVgpuTypeGetFbReservation, ull, type->reserved_mib * MIB)
TYPE_NUMBER(nvmlVgpuTypeGetGspHeapSize, ull, type->gsp_heap_mib * MIB)
TYPE_NUMBER(nvmlVgpuTypeGetNumDisplayHeads, uint, type->heads)
TYPE_NUMBER(nvmlVgpuTypeGetMaxInstancesPerVm, uint, type->per_vm)
TYPE_NUMBER(nvmlVgpuTypeGetGpuInstanceProfileId, uint, type->gi_profile < 0 ? NO_ID : (uint)type->gi_profile)

API nvmlReturn_t nvmlVgpuTypeGetFrameRateLimit(uint id, uint *out)
{
	TYPE_HEAD(id, out);
	*out = type->frl;
	return type->frl ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlVgpuTypeGetName(uint id, char *out, uint *size)
{
	TYPE_HEAD(id, out && size);
	return give_text(type->name, out, *size);
}

/* The class by the letter at the end of a type's name. */
API nvmlReturn_t nvmlVgpuTypeGetClass(uint id, char *out, uint *size)
{
	TYPE_HEAD(id, out && size);
	switch (type->series[0]) {
	case 'Q':
		return give_text("Quadro", out, *size);
	case 'C':
		return give_text("Compute", out, *size);
	default:
		return give_text("NVS", out, *size);
	}
}

API nvmlReturn_t nvmlVgpuTypeGetLicense(uint id, char *out, uint size)
{
	TYPE_HEAD(id, out);
	return give_text(type->license, out, size);
}

API nvmlReturn_t nvmlVgpuTypeGetDeviceID(uint id, ull *device, ull *subsystem)
{
	TYPE_HEAD(id, device && subsystem);
	*device = (ull)type->device << 16 | 0x10de;
	*subsystem = (ull)type->subsystem << 16 | 0x10de;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlVgpuTypeGetResolution(uint id, uint head, uint *width, uint *height)
{
	TYPE_HEAD(id, width && height);
	if (head >= type->heads)
		return NVML_ERROR_INVALID_ARGUMENT;
	*width = type->width;
	*height = type->height;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlVgpuTypeGetMaxInstances(nvmlDevice_t gpu, uint id, uint *out)
{
	CHECK_GPU(gpu, out);
	TYPE_HEAD(id, out);
	*out = type->max;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlVgpuTypeGetBAR1Info(uint id, nvmlVgpuTypeBar1Info_t *info)
{
	TYPE_HEAD(id, info);
	if (info->version != NVML_VERSION(*info, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	info->bar1Size = type->bar1_mib;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlVgpuTypeGetMaxInstancesPerGpuInstance(nvmlVgpuTypeMaxInstance_t *most)
{
	TYPE_HEAD(most->vgpuTypeId, most);
	if (most->version != NVML_VERSION(*most, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	most->maxInstancePerGI = type->per_gi;
	return type->gi_profile < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

/* Capabilities in NVML's numbering, 0..4; a time-sliced type needs its size alone on a GPU. */
API nvmlReturn_t nvmlVgpuTypeGetCapabilities(uint id, uint capability, uint *out)
{
	TYPE_HEAD(id, out);
	if (capability > 4)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = capability == 4 && type->place_size == 0;
	return NVML_SUCCESS;
}

static bool place_is_free(const struct vgpu *all, uint count, uint start, uint size)
{
	uint i;

	for (i = 0; i < count; i++)
		if (all[i].placement != NO_PLACEMENT && start < all[i].placement + all[i].type->place_size &&
		    all[i].placement < start + size)
			return false;
	return true;
}

static nvmlReturn_t placements(struct gpu *gpu, uint id, nvmlVgpuPlacementList_v2_t *list, bool mixed, bool free_only)
{
	struct vgpu all[MAX_PLACES];
	uint count = free_only ? source_vgpus(gpu, all, MAX_PLACES) : 0, places, start, i, room;

	TYPE_HEAD(id, list->placementIds);
	if (!type->place_size)
		return NVML_ERROR_NOT_SUPPORTED;
	/* Version 1 carries no room on entry: the caller sized the array by the type's maximum. */
	room = list->version >> 24 == 1 ? type->max : list->count;
	places = mixed ? type->nr_places : type->max;
	list->placementSize = type->place_size;
	list->count = 0;
	for (i = 0; i < places; i++) {
		start = mixed ? type->places[i] : i * type->place_size;
		if (!place_is_free(all, count, start, type->place_size))
			continue;
		if (list->count == room)
			return NVML_ERROR_INSUFFICIENT_SIZE;
		list->placementIds[list->count++] = start;
	}
	return NVML_SUCCESS;
}

/* A list of version 1 is the beginning of one of version 2. */
static nvmlReturn_t check_list(const nvmlVgpuPlacementList_v2_t *list)
{
	return list->version == NVML_VERSION(nvmlVgpuPlacementList_t, 1) ||
	       list->version == NVML_VERSION(nvmlVgpuPlacementList_v2_t, 2) ?
	       NVML_SUCCESS : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

API nvmlReturn_t nvmlDeviceGetVgpuTypeSupportedPlacements(nvmlDevice_t gpu, uint id, nvmlVgpuPlacementList_v2_t *list)
{
	CHECK_GPU(gpu, list);
	if (check_list(list) != NVML_SUCCESS)
		return check_list(list);
	return placements(gpu, id, list, list->version >> 24 == 1 || list->mode == 0, false);
}

API nvmlReturn_t nvmlDeviceGetVgpuTypeCreatablePlacements(nvmlDevice_t gpu, uint id, nvmlVgpuPlacementList_v2_t *list)
{
	CHECK_GPU(gpu, list);
	if (check_list(list) != NVML_SUCCESS)
		return check_list(list);
	return placements(gpu, id, list, source_number_or(gpu, "heterogeneous", 0), true);
}
