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
#define NO_ID 0xffffffffu
#define NO_PLACEMENT 0xffffu

struct vgpu_type {
	uint id, max, device, subsystem, heads, frl, width, height, place_size, nr_places;
	uint guest_fb_mib, per_vm, bar1_mib, reserved_mib, gsp_heap_mib;
	ull fb_mib;
	int gi_profile;
	uint places[MAX_PLACES];
	char name[64], series[4], license[64];
};

struct gpu {
	uint index, device, subsystem;
	bool bound, vfs, vendor_vfio;
	char dir[16], bdf[16], name[64], uuid[64], serial[32];
	char facts[4096];
	struct vgpu_type types[MAX_TYPES];
	uint nr_types;
};

struct vgpu {
	struct gpu *gpu;
	const struct vgpu_type *type;
	uint instance, placement;
	int pid;
	bool open;
	char device[16], uuid[40];
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
uint source_vgpus(struct gpu *gpu, struct vgpu *out, uint max);

/* Checks at the head of the calls. */
nvmlReturn_t check_gpu(const struct gpu *gpu);
const struct vgpu_type *find_type(uint id);
nvmlReturn_t find_vgpu(uint instance, struct vgpu *out);
nvmlReturn_t give_text(const char *text, char *out, size_t size);
nvmlReturn_t give_ids(const uint *ids, uint have, uint *count, uint *out);

#define CHECK_GPU(gpu, pointer) \
	do { \
		nvmlReturn_t checked_ = check_gpu(gpu); \
		if (checked_ != NVML_SUCCESS) \
			return checked_; \
		if (!(pointer)) \
			return NVML_ERROR_INVALID_ARGUMENT; \
	} while (0)
#endif
