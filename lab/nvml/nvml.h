/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML's binary interface that this library answers: values and struct layouts are NVML's. */
#ifndef LAB_NVML_H
#define LAB_NVML_H

#define API __attribute__((visibility("default")))

typedef unsigned int uint;
typedef unsigned long long ull;
typedef int nvmlReturn_t;
typedef struct gpu *nvmlDevice_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_UNKNOWN = 999,
};

/* A struct's version field: the number in the top byte, its size below. */
#define NVML_VERSION(type, number) (sizeof(type) | (uint)(number) << 24)

typedef struct {
	char busIdLegacy[16];
	uint domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct {
	ull total, free, used;
} nvmlMemory_t;

typedef struct {
	uint version;
	ull total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	uint gpu, memory;
} nvmlUtilization_t;

typedef struct {
	uint version;
	unsigned char clusterUuid[16];
	nvmlReturn_t status;
	uint cliqueId;
	unsigned char state;
	uint healthMask;
} nvmlGpuFabricInfo_v2_t;

typedef struct {
	uint version, sensor;
	int temperature;
} nvmlTemperature_t;

typedef struct {
	uint version, mode;
} nvmlVgpuHeterogeneousMode_t;

typedef struct {
	uint version, placementId;
} nvmlVgpuPlacementId_t;

typedef struct {
	unsigned char isLicensed;
	struct {
		uint year;
		unsigned short month, day, hour, min, sec;
		unsigned char status;
	} licenseExpiry;
	uint currentState;
} nvmlVgpuLicenseInfo_t;

typedef struct {
	uint version, placementSize, count, *placementIds;
} nvmlVgpuPlacementList_t;

typedef struct {
	uint version, placementSize, count, *placementIds, mode;
} nvmlVgpuPlacementList_v2_t;

typedef struct {
	uint version;
	ull bar1Size;
} nvmlVgpuTypeBar1Info_t;

typedef struct {
	uint start, size;
} nvmlGpuInstancePlacement_t, nvmlComputeInstancePlacement_t;

typedef struct gpu_instance *nvmlGpuInstance_t;
typedef struct compute_instance *nvmlComputeInstance_t;

typedef struct {
	uint id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
	     encoderCount, jpegCount, ofaCount;
	ull memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
	uint version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
	     encoderCount, jpegCount, ofaCount;
	ull memorySizeMB;
	char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;

typedef struct {
	nvmlDevice_t device;
	uint id, profileId;
	nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
	uint id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
	     sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
	uint version;
	nvmlComputeInstanceProfileInfo_t info;
	char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
	nvmlDevice_t device;
	nvmlGpuInstance_t gpuInstance;
	uint id, profileId;
	nvmlComputeInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
	uint multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
	     sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
	ull memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
	uint schedulerPolicy, arrMode, avgFactor, last;		/* without ARR the time slice stands in avgFactor's place */
} nvmlVgpuSchedulerState_t;

typedef struct {
	uint engineId, schedulerPolicy, avgFactor, last;	/* set: frequency; get: time slice */
} nvmlVgpuSchedulerState_v2_t;

typedef struct {
	uint supportedSchedulers[3], maxTimeslice, minTimeslice, isArrModeSupported, maxFrequencyForARR, minFrequencyForARR,
	     maxAvgFactorForARR, minAvgFactorForARR;
} nvmlVgpuSchedulerCapabilities_t;

typedef struct {
	uint version, vgpuTypeId, maxInstancePerGI;
} nvmlVgpuTypeMaxInstance_t;

typedef struct {
	uint minVersion, maxVersion;
} nvmlVgpuVersion_t;

typedef struct {
	uint version, revision, guestInfoState;
	char guestDriverVersion[80], hostDriverVersion[80];
	uint reserved[6], vgpuVirtualizationCaps, guestVgpuVersion, opaqueDataSize;
	char opaqueData[];	/* [4] there */
} nvmlVgpuMetadata_t;

typedef struct {
	uint version, revision;
	char hostDriverVersion[80];
	uint pgpuVirtualizationCaps, reserved[5];
	nvmlVgpuVersion_t hostSupportedVgpuRange;
	uint opaqueDataSize;
	char opaqueData[];
} nvmlVgpuPgpuMetadata_t;

typedef struct {
	uint vgpuVmCompatibility, compatibilityLimitCode;
} nvmlVgpuPgpuCompatibility_t;

typedef struct {
	uint version;
	ull size;
} nvmlVgpuRuntimeState_t;

typedef struct {
	uint version;
	int margin;
} nvmlMarginTemperature_t;

typedef struct {
	uint max, high, partial, low, none;
} nvmlRowRemapperHistogram_t;

typedef struct {
	uint fieldId, scopeId;
	long long timestamp, latencyUsec;
	uint valueType;
	nvmlReturn_t nvmlReturn;
	ull value;	/* a union of numbers there */
} nvmlFieldValue_t;

typedef struct {
	ull timestamp_us;
	uint instance;
	ull sm, memory, encoder, decoder, jpeg, ofa;	/* unions of numbers there */
} nvmlVgpuUtilization_t;

typedef struct {
	uint version, value_type, count;
	ull last_seen_us;
	nvmlVgpuUtilization_t *samples;
} nvmlVgpuInstancesUtilization_t;

typedef struct {
	uint version, supported;
} nvmlGpmSupport_t;

typedef struct {
	uint id;
	nvmlReturn_t nvmlReturn;
	double value;
	const char *words[3];
} nvmlGpmMetric_t;

typedef struct {
	uint version, count;
	struct gpm_sample *first, *second;
	nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;
#endif
