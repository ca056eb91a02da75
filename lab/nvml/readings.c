// SPDX-License-Identifier: Apache-2.0
/* Numbers that live: what runs keeps a GPU busy, counters follow the time since the machine booted. A key of "sensors"
 * goes before each. */
#include <time.h>
#include "lab.h"

enum { AMPERE = 7 };
enum { TYPE_UINT = 1, TYPE_ULL = 3 };

ull uptime_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec;
}

static uint architecture(struct gpu *gpu)
{
	uint number = 0;

	return nvmlDeviceGetArchitecture(gpu, &number) == NVML_SUCCESS ? number : 0;
}

/* In percent of the GPU; a key "vgpu_sm" is every vGPU's. */
uint vgpu_busy(const struct vgpu *vgpu)
{
	return source_number_or(vgpu->gpu, "vgpu_sm", (vgpu->instance * 7 + uptime_s() / 10) % 20 + 1);
}

uint gpu_busy(struct gpu *gpu)
{
	struct vgpu all[MAX_PLACES];
	uint i, count = source_vgpus(gpu, all, MAX_PLACES), busy = 0;

	for (i = 0; i < count; i++)
		if (all[i].open)
			busy += vgpu_busy(&all[i]);
	return source_number_or(gpu, "utilization", busy < 100 ? busy : 100);
}

static nvmlReturn_t give_video(struct gpu *gpu, const char *key, uint *percent, uint *period_us)
{
	CHECK_GPU(gpu, percent && period_us);
	*percent = source_number_or(gpu, key, 0);
	*period_us = 167000;
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t gpu, uint *percent, uint *period_us)
{
	return give_video(gpu, "encoder_utilization", percent, period_us);
}

API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t gpu, uint *percent, uint *period_us)
{
	return give_video(gpu, "decoder_utilization", percent, period_us);
}

/* Shutdown, slowdown, memory, operating; a GPU without a sensor for its memory has no limit of it. */
API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t gpu, uint threshold, uint *celsius)
{
	static const uint limits[] = { 96, 93, 95, 85 };
	long long memory;

	CHECK_GPU(gpu, celsius);
	if (threshold > 3 || (threshold == 2 && !source_number(gpu, "memory_temperature_c", &memory)))
		return NVML_ERROR_NOT_SUPPORTED;
	*celsius = limits[threshold];
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t gpu, nvmlMarginTemperature_t *margin)
{
	CHECK_GPU(gpu, margin);
	if (margin->version != NVML_VERSION(*margin, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (architecture(gpu) < AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	margin->margin = 93 - source_number_or(gpu, "temperature_c", 34);
	return NVML_SUCCESS;
}

/* Graphics, multiprocessors, memory, video: in MHz. */
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, uint clock, uint *mhz)
{
	static const char *const keys[] = { "clock_graphics_mhz", "clock_sm_mhz", "clock_memory_mhz", "clock_video_mhz" };
	uint busy;

	CHECK_GPU(gpu, mhz);
	if (clock > 3)
		return NVML_ERROR_INVALID_ARGUMENT;
	busy = gpu_busy(gpu);
	*mhz = source_number_or(gpu, keys[clock], clock == 2 ? (busy ? 5001 : 405) : 300 + 12 * busy);
	return NVML_SUCCESS;
}

#define LINK_CALL(call, key, fallback) \
	API nvmlReturn_t call(nvmlDevice_t gpu, uint *out) \
	{ \
		CHECK_GPU(gpu, out); \
		*out = source_number_or(gpu, key, fallback); \
		return NVML_SUCCESS; \
	}

LINK_CALL(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
LINK_CALL(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max", 16)
LINK_CALL(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", 3)

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t gpu, uint *corrected, uint *uncorrected, uint *pending,
					   uint *failed)
{
	CHECK_GPU(gpu, corrected && uncorrected && pending && failed);
	if (architecture(gpu) < AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	*corrected = source_number_or(gpu, "rows_corrected", 0);
	*uncorrected = source_number_or(gpu, "rows_uncorrected", 0);
	*pending = source_number_or(gpu, "remap_pending", 0);
	*failed = source_number_or(gpu, "remap_failed", 0);
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t gpu, nvmlRowRemapperHistogram_t *banks)
{
	CHECK_GPU(gpu, banks);
	if (architecture(gpu) < AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	*banks = (nvmlRowRemapperHistogram_t){ .max = 640, .low = source_number_or(gpu, "banks_low", 0) };
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t gpu, char *out, uint size)
{
	CHECK_GPU(gpu, out);
	return give_text("90.04.96.00.01", out, size);
}

/* Fields that are a number of "sensors" or, without one, this one; those since an architecture only. */
static const struct field {
	uint id, since;
	const char *key;
	long long fallback;
} fields[] = {
	{ 74, 0, "clocks_limited_power_ns", 0 },
	{ 75, 0, "clocks_limited_thermal_ns", 0 },
	{ 76, 0, "clocks_limited_sync_boost_ns", 0 },
	{ 77, 0, "clocks_limited_board_limit_ns", 0 },
	{ 78, 0, "clocks_limited_low_utilization_ns", 0 },
	{ 79, 0, "clocks_limited_reliability_ns", 0 },
	{ 80, 0, "clocks_limited_app_clocks_ns", 0 },
	{ 81, 0, "clocks_limited_base_clocks_ns", 0 },
	{ 82, 0, "memory_temperature_c", -1 },
	{ 91, 0, "nvlinks", -1 },
	{ 94, 0, "pcie_replays", 0 },
	{ 142, AMPERE, "rows_corrected", 0 },
	{ 143, AMPERE, "rows_uncorrected", 0 },
	{ 144, AMPERE, "remap_pending", 0 },
	{ 145, AMPERE, "remap_failed", 0 },
	{ 185, 0, "power_mw", 28000 },
	{ 186, 0, "power_mw", 28000 },
	{ 188, 0, "power_limit_mw", -1 },
	{ 189, 0, "power_limit_mw", -1 },
	{ 230, AMPERE, "recovery_action", 0 },
};

/* Replays, recoveries, checksums, state: of a link. */
static nvmlReturn_t link_field(struct gpu *gpu, uint id, uint link, ull *out)
{
	if ((long long)link >= source_number_or(gpu, "nvlinks", 0))
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = id == 165 ? link != source_number_or(gpu, "nvlink_down", -1) : (ull)source_number_or(gpu, "nvlink_errors", 0);
	return NVML_SUCCESS;
}

static nvmlReturn_t field_value(struct gpu *gpu, uint id, uint scope, ull *out)
{
	long long value;
	uint i;

	if (id >= 161 && id <= 165 && id != 164)
		return link_field(gpu, id, scope, out);
	if (id == 83)
		*out = source_number_or(gpu, "energy_mj", source_number_or(gpu, "power_mw", 28000) * uptime_s());
	else if (id == 187 && source_number(gpu, "power_limit_mw", &value))
		*out = source_number_or(gpu, "power_limit_min_mw", value / 2);
	else if (id == 192 && source_number(gpu, "power_limit_mw", &value))
		*out = source_number_or(gpu, "power_limit_set_mw", 0) ?: value;
	else if ((id == 197 || id == 198) && architecture(gpu) >= AMPERE)
		*out = source_number_or(gpu, id == 197 ? "pcie_sent_bytes" : "pcie_received_bytes", uptime_s() * 4096);
	else {
		for (i = 0; i < sizeof(fields) / sizeof(*fields) && fields[i].id != id; i++)
			;
		if (i == sizeof(fields) / sizeof(*fields) || architecture(gpu) < fields[i].since)
			return NVML_ERROR_NOT_SUPPORTED;
		value = source_number_or(gpu, fields[i].key, fields[i].fallback);
		if (value < 0)
			return NVML_ERROR_NOT_SUPPORTED;
		*out = value;
	}
	return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t gpu, int count, nvmlFieldValue_t *values)
{
	int i;

	CHECK_GPU(gpu, values);
	for (i = 0; i < count; i++) {
		values[i].valueType = TYPE_ULL;
		values[i].value = 0;
		values[i].nvmlReturn = field_value(gpu, values[i].fieldId, values[i].scopeId, &values[i].value);
	}
	return NVML_SUCCESS;
}

/* One sample of each vGPU, of this moment. */
API nvmlReturn_t nvmlDeviceGetVgpuInstancesUtilizationInfo(nvmlDevice_t gpu, nvmlVgpuInstancesUtilization_t *info)
{
	struct vgpu all[MAX_PLACES];
	uint i, count, have = 0, room;

	CHECK_GPU(gpu, info);
	if (info->version != NVML_VERSION(*info, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	count = source_vgpus(gpu, all, MAX_PLACES);
	room = info->samples ? info->count : 0;
	for (i = 0; i < count; i++) {
		if (!all[i].open)
			continue;
		if (have < room)
			info->samples[have] = (nvmlVgpuUtilization_t){
				.timestamp_us = (ull)time(NULL) * 1000000, .instance = all[i].instance,
				.sm = vgpu_busy(&all[i]), .memory = source_number_or(gpu, "vgpu_memory", 1),
				.encoder = source_number_or(gpu, "vgpu_encoder", 0),
				.decoder = source_number_or(gpu, "vgpu_decoder", 0),
			};
		have++;
	}
	info->count = have;
	info->value_type = TYPE_UINT;
	return have > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
