// SPDX-License-Identifier: Apache-2.0
/* vGPUs that running VMs have open. */
#include <stdio.h>
#include <string.h>
#include "lab.h"

API nvmlReturn_t nvmlDeviceGetActiveVgpus(nvmlDevice_t gpu, uint *count, uint *out)
{
	struct vgpu all[MAX_PLACES];
	uint ids[MAX_PLACES], have = 0, i, n;

	CHECK_GPU(gpu, count);
	if (!gpu->nr_types)
		return NVML_ERROR_NOT_SUPPORTED;
	n = source_vgpus(gpu, all, MAX_PLACES);
	for (i = 0; i < n; i++)
		if (all[i].open)
			ids[have++] = all[i].instance;
	return give_ids(ids, have, count, out);
}

#define VGPU_HEAD(id, pointer) \
	struct vgpu vgpu; \
	nvmlReturn_t found = find_vgpu(id, &vgpu); \
	if (found != NVML_SUCCESS) \
		return found; \
	if (!(pointer)) \
		return NVML_ERROR_INVALID_ARGUMENT

#define VGPU_NUMBER(call, ctype, expression) \
	API nvmlReturn_t call(uint id, ctype *out) \
	{ \
		VGPU_HEAD(id, out); \
		*out = (expression); \
		return NVML_SUCCESS; \
	}

VGPU_NUMBER(nvmlVgpuInstanceGetType, uint, vgpu.type->id)
VGPU_NUMBER(nvmlVgpuInstanceGetFbUsage, ull,
	    source_number_or(vgpu.gpu, "vgpu_memory_used_mib", vgpu.type->fb_mib / 8) * 1024 * 1024)
VGPU_NUMBER(nvmlVgpuInstanceGetGpuInstanceId, uint, vgpu.gpu_instance < 0 ? NO_ID : (uint)vgpu.gpu_instance)
VGPU_NUMBER(nvmlVgpuInstanceGetFrameRateLimit, uint, vgpu.type->frl)
VGPU_NUMBER(nvmlVgpuInstanceGetEccMode, uint, source_number_or(vgpu.gpu, "ecc", 0))

API nvmlReturn_t nvmlVgpuInstanceGetUUID(uint id, char *out, uint size)
{
	VGPU_HEAD(id, out);
	return give_text(vgpu.uuid, out, size);
}

API nvmlReturn_t nvmlVgpuInstanceGetMdevUUID(uint id, char *out, uint size)
{
	VGPU_HEAD(id, out);
	if (vgpu.gpu->vendor_vfio)
		return NVML_ERROR_NOT_SUPPORTED;
	return give_text(vgpu.uuid, out, size);
}

/* QEMU carries the VM's UUID on its command line; NVIDIA's manager reads it there as well. */
API nvmlReturn_t nvmlVgpuInstanceGetVmID(uint id, char *out, uint size, uint *kind)
{
	char path[64], line[65536], *word, *end;
	size_t len;

	VGPU_HEAD(id, out && kind);
	snprintf(path, sizeof(path), "/proc/%d/cmdline", vgpu.pid);
	len = source_read(path, line, sizeof(line));
	for (word = line, end = line + len; word < end; word += strlen(word) + 1)
		if (!strcmp(word, "-uuid") && word + 6 < end) {
			*kind = 1;
			return give_text(word + 6, out, size);
		}
	return NVML_ERROR_NOT_FOUND;
}

/* A guest of the lab fetches no licence from anybody. Whoever tries one writes "VM YEAR MONTH DAY HOUR MINUTE SECOND" into
 * this file, a line for each VM that has one; a year of 0 is one without an end. */
#define LICENCES "/run/vgpu-lab/licences"
enum { EXPIRY_VALID = 2, EXPIRY_PERMANENT = 4 };
enum { STATE_UNLICENSED = 4, STATE_LICENSED = 5 };

static bool parse_licence(const char *line, const char *vm, nvmlVgpuLicenseInfo_t *out)
{
	nvmlVgpuLicenseInfo_t told = { .isLicensed = 1, .currentState = STATE_LICENSED };
	char of[40];

	if (sscanf(line, "%39s %u %hu %hu %hu %hu %hu", of, &told.licenseExpiry.year, &told.licenseExpiry.month,
		   &told.licenseExpiry.day, &told.licenseExpiry.hour, &told.licenseExpiry.min,
		   &told.licenseExpiry.sec) != 7 || strcmp(of, vm))
		return false;
	told.licenseExpiry.status = told.licenseExpiry.year ? EXPIRY_VALID : EXPIRY_PERMANENT;
	*out = told;
	return true;
}

API nvmlReturn_t nvmlVgpuInstanceGetLicenseInfo_v2(uint id, nvmlVgpuLicenseInfo_t *out)
{
	char text[8192], vm[40] = "", *line;
	uint kind;

	VGPU_HEAD(id, out);
	*out = (nvmlVgpuLicenseInfo_t){ .currentState = STATE_UNLICENSED };
	if (nvmlVgpuInstanceGetVmID(id, vm, sizeof(vm), &kind) != NVML_SUCCESS)
		return NVML_SUCCESS;
	source_read(LICENCES, text, sizeof(text));
	for (line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (parse_licence(line, vm, out))
			break;
	}
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlVgpuInstanceGetLicenseStatus(uint id, uint *out)
{
	nvmlVgpuLicenseInfo_t told;
	nvmlReturn_t found = out ? nvmlVgpuInstanceGetLicenseInfo_v2(id, &told) : NVML_ERROR_INVALID_ARGUMENT;

	if (found == NVML_SUCCESS)
		*out = told.isLicensed;
	return found;
}

API nvmlReturn_t nvmlVgpuInstanceGetVmDriverVersion(uint id, char *out, uint size)
{
	char version[64] = "Not Available";

	VGPU_HEAD(id, out);
	source_text(vgpu.gpu, "guest_driver", version, sizeof(version));
	return give_text(version, out, size);
}

/* Sessions, frames a second, microseconds. */
API nvmlReturn_t nvmlVgpuInstanceGetEncoderStats(uint id, uint *sessions, uint *rate, uint *latency)
{
	VGPU_HEAD(id, sessions && rate && latency);
	*sessions = source_number_or(vgpu.gpu, "vgpu_encoder_sessions", 0);
	*rate = *latency = 0;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlVgpuInstanceGetPlacementId(uint id, nvmlVgpuPlacementId_t *placement)
{
	VGPU_HEAD(id, placement);
	if (placement->version != NVML_VERSION(*placement, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	placement->placementId = vgpu.placement;
	return vgpu.placement == NO_PLACEMENT ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}
