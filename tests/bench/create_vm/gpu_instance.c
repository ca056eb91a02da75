/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_instance make|remove GPU SLICES MIB: a GPU instance of the smallest profile with so many slices and at least so
 * much memory, with a compute instance that takes all of it; MIG is switched on where it is off. What an operator does
 * with nvidia-smi -mig and nvidia-smi mig -cgi ... -C, by the same functions of NVML (nvml.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gpu *nvmlDevice_t;
typedef struct gpu_instance *nvmlGpuInstance_t;
typedef struct compute_instance *nvmlComputeInstance_t;
typedef struct {
	unsigned int id, isP2pSupported, sliceCount, instanceCount, rest[6];
	unsigned long long memorySizeMB;
} profile_t;
typedef struct {
	unsigned int id, sliceCount, instanceCount, rest[6];
} compute_profile_t;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *, nvmlDevice_t *);
int nvmlDeviceGetMigMode(nvmlDevice_t, unsigned int *, unsigned int *);
int nvmlDeviceSetMigMode(nvmlDevice_t, unsigned int, int *);
int nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t, unsigned int, profile_t *);
int nvmlDeviceCreateGpuInstance(nvmlDevice_t, unsigned int, nvmlGpuInstance_t *);
int nvmlDeviceGetGpuInstances(nvmlDevice_t, unsigned int, nvmlGpuInstance_t *, unsigned int *);
int nvmlGpuInstanceDestroy(nvmlGpuInstance_t);
int nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t, unsigned int, unsigned int, compute_profile_t *);
int nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t, unsigned int, nvmlComputeInstance_t *);
int nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t, unsigned int, nvmlComputeInstance_t *, unsigned int *);
int nvmlComputeInstanceDestroy(nvmlComputeInstance_t);

static void ok(const char *what, int status)
{
	if (status) {
		fprintf(stderr, "%s: NVML answers %d\n", what, status);
		exit(1);
	}
}

static profile_t profile_of(nvmlDevice_t gpu, unsigned int slices, unsigned long long mib)
{
	profile_t best = {0}, one;
	unsigned int at;

	for (at = 0; at < 0x12; at++)
		if (!nvmlDeviceGetGpuInstanceProfileInfo(gpu, at, &one) && one.sliceCount == slices &&
		    one.memorySizeMB >= mib && (!best.sliceCount || one.memorySizeMB < best.memorySizeMB))
			best = one;
	if (!best.sliceCount)
		ok("no such profile", 2);
	return best;
}

static compute_profile_t whole_of(nvmlGpuInstance_t instance)
{
	compute_profile_t best = {0}, one;
	unsigned int at;

	for (at = 0; at < 8; at++)
		if (!nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, at, 0, &one) && one.sliceCount > best.sliceCount)
			best = one;
	return best;
}

static void make(nvmlDevice_t gpu, profile_t profile)
{
	nvmlComputeInstance_t compute;
	nvmlGpuInstance_t instance;

	ok("GPU instance", nvmlDeviceCreateGpuInstance(gpu, profile.id, &instance));
	ok("compute instance", nvmlGpuInstanceCreateComputeInstance(instance, whole_of(instance).id, &compute));
}

static void destroy(nvmlDevice_t gpu, profile_t profile)
{
	nvmlComputeInstance_t computes[64];
	nvmlGpuInstance_t instances[64];
	unsigned int count = 64, inside;

	ok("GPU instances", nvmlDeviceGetGpuInstances(gpu, profile.id, instances, &count));
	while (count--) {
		inside = 64;
		ok("compute instances", nvmlGpuInstanceGetComputeInstances(instances[count], whole_of(instances[count]).id,
									   computes, &inside));
		while (inside--)
			ok("compute instance", nvmlComputeInstanceDestroy(computes[inside]));
		ok("GPU instance", nvmlGpuInstanceDestroy(instances[count]));
	}
}

int main(int argc, char **argv)
{
	unsigned int current, pending;
	int activation = 0;
	nvmlDevice_t gpu;
	profile_t profile;

	if (argc != 5)
		return 2;
	ok("NVML", nvmlInit_v2());
	ok("GPU", nvmlDeviceGetHandleByPciBusId_v2(argv[2], &gpu));
	ok("MIG mode", nvmlDeviceGetMigMode(gpu, &current, &pending));
	if (!current)
		ok("MIG mode", nvmlDeviceSetMigMode(gpu, 1, &activation));
	ok("MIG mode", activation);
	profile = profile_of(gpu, atoi(argv[3]), strtoull(argv[4], NULL, 10));
	if (strcmp(argv[1], "make"))
		destroy(gpu, profile);
	else
		make(gpu, profile);
	return nvmlShutdown();
}
