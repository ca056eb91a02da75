// SPDX-License-Identifier: Apache-2.0
/* May a vGPU move to a GPU: what each says of itself, kept by whoever asks, and the answer to both together. */
#include <stdio.h>
#include <string.h>
#include "lab.h"

#define REVISION 1
enum { COLD = 1, HIBERNATE = 2, SLEEP = 4, LIVE = 8 };
enum { LIMIT_HOST_DRIVER = 1, LIMIT_GUEST_DRIVER = 2, LIMIT_GPU = 4 };
enum { CAN_MIGRATE = 1 };

/* What no caller looks into: of the vGPU its GPU's board and the version of the state that its host would send. */
struct board {
	uint device, subsystem, ecc, version;
};

/* Of states that this GPU takes; it sends the newest. The defaults are the driver's. */
nvmlVgpuVersion_t vgpu_versions(const struct gpu *gpu)
{
	nvmlVgpuVersion_t range = { 0x070001, 0x120001 };
	char text[128];

	if (source_text(gpu, "migration", text, sizeof(text)))
		sscanf(text, "%*u %*u %*u %x %x", &range.minVersion, &range.maxVersion);
	return range;
}

static struct board board_of(const struct gpu *gpu)
{
	return (struct board){ gpu->device, gpu->subsystem, source_number_or(gpu, "ecc", 0), vgpu_versions(gpu).maxVersion };
}

/* NVML's habit with what grows: the first call asks for the size. */
#define GIVE_METADATA(out, size, need) \
	do { \
		if (!(size)) \
			return NVML_ERROR_INVALID_ARGUMENT; \
		if (*(size) < (need) || !(out)) { \
			*(size) = (need); \
			return NVML_ERROR_INSUFFICIENT_SIZE; \
		} \
		*(size) = (need); \
		memset(out, 0, need); \
	} while (0)

API nvmlReturn_t nvmlVgpuInstanceGetMetadata(uint id, nvmlVgpuMetadata_t *out, uint *size)
{
	struct vgpu vgpu;
	nvmlReturn_t found = find_vgpu(id, &vgpu);

	if (found != NVML_SUCCESS)
		return found;
	GIVE_METADATA(out, size, offsetof(nvmlVgpuMetadata_t, opaqueData) + sizeof(struct board));
	out->version = 1;
	out->revision = REVISION;
	out->guestInfoState = source_text(vgpu.gpu, "guest_driver", out->guestDriverVersion, sizeof(out->guestDriverVersion));
	give_text(source_driver(), out->hostDriverVersion, sizeof(out->hostDriverVersion));
	out->vgpuVirtualizationCaps = CAN_MIGRATE;
	if (out->guestInfoState)
		out->guestVgpuVersion = vgpu_versions(vgpu.gpu).maxVersion;
	out->opaqueDataSize = sizeof(struct board);
	memcpy(out->opaqueData, &(struct board[]){ board_of(vgpu.gpu) }, sizeof(struct board));
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetVgpuMetadata(nvmlDevice_t gpu, nvmlVgpuPgpuMetadata_t *out, uint *size)
{
	CHECK_GPU(gpu, size);
	if (!gpu->nr_types)
		return NVML_ERROR_NOT_SUPPORTED;
	GIVE_METADATA(out, size, offsetof(nvmlVgpuPgpuMetadata_t, opaqueData) + sizeof(struct board));
	out->version = 1;
	out->revision = REVISION;
	give_text(source_driver(), out->hostDriverVersion, sizeof(out->hostDriverVersion));
	out->pgpuVirtualizationCaps = CAN_MIGRATE;
	out->hostSupportedVgpuRange = vgpu_versions(gpu);
	out->opaqueDataSize = sizeof(struct board);
	memcpy(out->opaqueData, &(struct board[]){ board_of(gpu) }, sizeof(struct board));
	return NVML_SUCCESS;
}

static bool takes(const nvmlVgpuPgpuMetadata_t *pgpu, uint version)
{
	return version >= pgpu->hostSupportedVgpuRange.minVersion && version <= pgpu->hostSupportedVgpuRange.maxVersion;
}

/* By both structs alone: neither the vGPU nor the GPU need be this host's. Another board takes no such vGPU at all. */
API nvmlReturn_t nvmlGetVgpuCompatibility(nvmlVgpuMetadata_t *vgpu, nvmlVgpuPgpuMetadata_t *pgpu,
					  nvmlVgpuPgpuCompatibility_t *out)
{
	struct board from, to;

	if (!source_is_open())
		return NVML_ERROR_UNINITIALIZED;
	if (!vgpu || !pgpu || !out || vgpu->opaqueDataSize != sizeof(from) || pgpu->opaqueDataSize != sizeof(to))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (vgpu->version != 1 || pgpu->version != 1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memcpy(&from, vgpu->opaqueData, sizeof(from));
	memcpy(&to, pgpu->opaqueData, sizeof(to));
	*out = (nvmlVgpuPgpuCompatibility_t){ 0, 0 };
	if (from.device != to.device || from.subsystem != to.subsystem) {
		out->compatibilityLimitCode = LIMIT_GPU;
		return NVML_SUCCESS;
	}
	if (from.ecc != to.ecc)
		out->compatibilityLimitCode |= LIMIT_GPU;
	if (!takes(pgpu, from.version))
		out->compatibilityLimitCode |= LIMIT_HOST_DRIVER;
	if (vgpu->guestInfoState && !takes(pgpu, vgpu->guestVgpuVersion))
		out->compatibilityLimitCode |= LIMIT_GUEST_DRIVER;
	out->vgpuVmCompatibility = out->compatibilityLimitCode ? COLD : COLD | HIBERNATE | SLEEP | LIVE;
	return NVML_SUCCESS;
}

/* Bytes that a move of it transfers at least. */
API nvmlReturn_t nvmlVgpuInstanceGetRuntimeStateSize(uint id, nvmlVgpuRuntimeState_t *out)
{
	struct vgpu vgpu;
	nvmlReturn_t found = find_vgpu(id, &vgpu);

	if (found != NVML_SUCCESS)
		return found;
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (out->version != NVML_VERSION(*out, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	out->size = (ull)source_number_or(vgpu.gpu, "migration", 0) * 1024;
	return NVML_SUCCESS;
}
