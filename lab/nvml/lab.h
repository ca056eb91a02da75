/* SPDX-License-Identifier: Apache-2.0 */
/* What the library knows: the module's files under /sys/kernel/vgpu_lab, read anew for everything that changes. */
#ifndef LAB_H
#define LAB_H

#include <stdbool.h>
#include <stddef.h>
#include "nvml.h"

#define MAX_GPUS 16
#define MAX_TYPES 128
#define MAX_PLACES 256
#define MAX_PROFILES 20
#define MAX_STARTS 16
#define MAX_INSTANCES 32
#define MAX_COMPUTES 8
#define NO_ID 0xffffffffu
#define NO_PLACEMENT 0xffffu

struct vgpu_type {
	uint id, max, device, subsystem, heads, frl, width, height, place_size, nr_places;
	uint guest_fb_mib, per_vm, per_gi, bar1_mib, reserved_mib, gsp_heap_mib;
	ull fb_mib;
	int gi_profile;
	uint places[MAX_PLACES];
	char name[64], series[4], license[64];
};

/* A GPU instance profile, as the catalogue has it. */
struct mig_profile {
	uint id, slices, size, total, max, number, memory_mib;	/* number: NVML's, to enumerate with */
	uint sms, copy_engines, decoders, encoders, jpegs, ofas;
	uint starts[MAX_STARTS], nr_starts;
	char name[24];
};

struct gpu {
	uint index, device, subsystem;
	bool bound, vfs, vendor_vfio, mig_reset;
	int file;			/* open while the library is; -1: another has locked the GPU */
	char dir[16], bdf[16], name[64], uuid[64], serial[32];
	char facts[4096];
	struct vgpu_type types[MAX_TYPES];
	uint nr_types;
	struct mig_profile profiles[MAX_PROFILES];
	uint nr_profiles;
};

struct vgpu {
	struct gpu *gpu;
	const struct vgpu_type *type;
	uint instance, placement;
	int pid, gpu_instance;		/* -1: time-sliced */
	bool open;
	char device[16], uuid[40];
};

/* Handles: all there can be, each at a place of its own. What one means is read anew at every call. */
struct gpu_instance {
	struct gpu *gpu;
	uint id;
};

struct compute_instance {
	struct gpu *gpu;
	uint gpu_instance, id;
};

/* What the module says of MIG on a GPU. */
struct mig_state {
	uint current, pending, made, nr_left, nr_gpu, nr_compute;
	struct {
		uint profile, count;
	} left[MAX_PROFILES];
	struct {
		uint id, profile, start;
	} gpu[MAX_INSTANCES];
	struct {
		uint gpu_instance, id, profile, start;
		char uuid[40];
	} compute[MAX_INSTANCES * 2];
};

extern struct gpu gpus[MAX_GPUS];
extern uint nr_gpus;

/* source.c */
nvmlReturn_t source_open(void);
void source_close(void);
bool source_is_open(void);
const char *source_driver(void);
size_t source_read(const char *path, char *buf, size_t size);
bool source_text(const struct gpu *gpu, const char *key, char *out, size_t size);
bool source_number(const struct gpu *gpu, const char *key, long long *out);
long long source_number_or(const struct gpu *gpu, const char *key, long long fallback);
nvmlReturn_t source_write(const struct gpu *gpu, const char *file, const char *text);
nvmlReturn_t source_command(const struct gpu *gpu, const char *file, const char *text, const char *answer, char *buf,
			    size_t size);
uint source_vgpus(struct gpu *gpu, struct vgpu *out, uint max);

/* Checks at the head of the calls. */
nvmlReturn_t check_gpu(const struct gpu *gpu);
const struct vgpu_type *find_type(uint id);
nvmlReturn_t find_vgpu(uint instance, struct vgpu *out);
nvmlReturn_t give_text(const char *text, char *out, size_t size);
nvmlReturn_t give_ids(const uint *ids, uint have, uint *count, uint *out);

/* readings.c, device.c */
ull uptime_s(void);
uint vgpu_busy(const struct vgpu *vgpu);
uint gpu_busy(struct gpu *gpu);
nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t gpu, uint *architecture);

/* health.c */
nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t gpu, uint *least, uint *most);

/* metadata.c */
nvmlVgpuVersion_t vgpu_versions(const struct gpu *gpu);

/* mig.c, compute_instance.c, mig_device.c */
void mig_read(const struct gpu *gpu, struct mig_state *state);
nvmlReturn_t mig_command(struct gpu *gpu, const char *text, uint *made);
const struct mig_profile *mig_profile(const struct gpu *gpu, uint id);
uint mig_find(const struct mig_state *state, uint id);
nvmlGpuInstance_t mig_gpu_instance(struct gpu *gpu, uint id);
nvmlReturn_t check_gpu_instance(nvmlGpuInstance_t instance, struct mig_state *state, uint *at);
uint compute_slices(uint profile);
struct compute_instance *mig_device(const void *device);
nvmlDevice_t mig_device_by_uuid(const char *uuid);
nvmlReturn_t mig_device_uuid(const struct compute_instance *mig, char *out, size_t size);
nvmlReturn_t mig_device_name(const struct compute_instance *mig, char *out, size_t size);
ull mig_device_memory_mib(const struct compute_instance *mig);

#define CHECK_GPU(gpu, pointer) \
	do { \
		nvmlReturn_t checked_ = check_gpu(gpu); \
		if (checked_ != NVML_SUCCESS) \
			return checked_; \
		if (!(pointer)) \
			return NVML_ERROR_INVALID_ARGUMENT; \
	} while (0)
#endif
