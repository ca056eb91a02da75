// SPDX-License-Identifier: GPL-2.0
/* MIG: the mode, GPU instances and compute instances of a GPU. All of it under lab_lock. */
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include "vgpu_lab.h"

#define ANY_START U32_MAX

struct lab_ci {
	struct list_head node;
	u32 id, profile, start, size;
	guid_t uuid;
	struct proc_dir_entry *proc;
};

/* Slices of the compute instance profiles, whose ids are NVML's numbers of them; 0: not on these GPUs. */
static const u32 compute_slices[] = { 1, 2, 3, 4, 7, 0, 0, 1 };

static const struct lab_profile *find_profile(struct lab_gpu *gpu, u32 id)
{
	unsigned int i;

	for (i = 0; i < gpu->nr_profiles; i++)
		if (gpu->profiles[i].id == id)
			return &gpu->profiles[i];
	return NULL;
}

static struct lab_gi *find_gi(struct lab_gpu *gpu, u32 id)
{
	struct lab_gi *gi;

	list_for_each_entry(gi, &gpu->instances, node)
		if (gi->id == id)
			return gi;
	return NULL;
}

static bool has_vgpu(struct lab_gpu *gpu, const struct lab_gi *gi, bool open_only)
{
	struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		if (vgpu->gi == gi && (vgpu->open || !open_only))
			return true;
	return false;
}

static bool is_free(struct lab_gpu *gpu, const struct lab_profile *profile, u32 start)
{
	struct lab_gi *gi;

	list_for_each_entry(gi, &gpu->instances, node)
		if (start < gi->start + gi->profile->size && gi->start < start + profile->size)
			return false;
	return true;
}

/* How many more GPU instances of a profile fit; *first gets the lowest start. */
static u32 profile_left(struct lab_gpu *gpu, const struct lab_profile *profile, u32 *first)
{
	u32 left = 0, used = 0, start = BITS_PER_LONG;
	struct lab_gi *gi;

	while (start--)
		if (test_bit(start, &profile->starts) && is_free(gpu, profile, start)) {
			*first = start;
			left++;
		}
	list_for_each_entry(gi, &gpu->instances, node)
		used += gi->profile == profile;
	return min(left, profile->max - used);
}

/* NVIDIA numbers the places as nodes of a binary tree over the memory slices, upper halves first. */
static u32 place_id(const struct lab_profile *profile, u32 start)
{
	u32 parts = profile->total / profile->size;

	return parts - 1 + (start / profile->size + parts / 2) % parts;
}

static int create_gi(struct lab_gpu *gpu, u32 id, u32 start)
{
	const struct lab_profile *profile = find_profile(gpu, id);
	struct lab_gi *gi;
	u32 first;

	if (!gpu->mig)
		return -EOPNOTSUPP;
	if (!profile || (start != ANY_START && (start >= BITS_PER_LONG || !test_bit(start, &profile->starts))))
		return -EINVAL;
	if (lab_take_fault(gpu, FAULT_INSTANCE))
		return -EIO;
	if (!profile_left(gpu, profile, &first) || (start != ANY_START && !is_free(gpu, profile, start)))
		return -ENOSPC;
	gi = kzalloc(sizeof(*gi), GFP_KERNEL);
	if (!gi)
		return -ENOMEM;
	INIT_LIST_HEAD(&gi->computes);
	gi->profile = profile;
	gi->start = start == ANY_START ? first : start;
	gpu->made = gi->id = place_id(profile, gi->start);
	gi->proc = lab_capability_add(gpu, gi, U32_MAX);
	list_add_tail(&gi->node, &gpu->instances);
	return 0;
}

static int destroy_gi(struct lab_gpu *gpu, u32 id)
{
	struct lab_gi *gi = find_gi(gpu, id);

	if (!gi)
		return -ENOENT;
	if (!list_empty(&gi->computes) || has_vgpu(gpu, gi, false))
		return -EBUSY;
	proc_remove(gi->proc);
	list_del(&gi->node);
	kfree(gi);
	return 0;
}

static bool compute_is_free(const struct lab_gi *gi, u32 start, u32 size)
{
	struct lab_ci *ci;

	list_for_each_entry(ci, &gi->computes, node)
		if (start < ci->start + ci->size && ci->start < start + size)
			return false;
	return true;
}

/* Three slices begin where four would. */
static bool compute_is_legal(const struct lab_gi *gi, u32 start, u32 size)
{
	return start % (size == 3 ? 4 : size) == 0 && start + size <= gi->profile->slices;
}

static u32 free_compute_id(const struct lab_gi *gi)
{
	struct lab_ci *ci;
	u32 id = 0;

	list_for_each_entry(ci, &gi->computes, node)	/* sorted by id */
		id += ci->id == id;
	return id;
}

static int add_compute(struct lab_gpu *gpu, struct lab_gi *gi, u32 profile, u32 start)
{
	struct lab_ci *before, *ci = kzalloc(sizeof(*ci), GFP_KERNEL);

	if (!ci)
		return -ENOMEM;
	ci->profile = profile;
	ci->start = start;
	ci->size = compute_slices[profile];
	gpu->made = ci->id = free_compute_id(gi);
	guid_gen(&ci->uuid);
	ci->proc = lab_capability_add(gpu, gi, ci->id);
	list_for_each_entry(before, &gi->computes, node)
		if (before->id > ci->id)
			break;
	list_add_tail(&ci->node, &before->node);
	return 0;
}

static int create_ci(struct lab_gpu *gpu, u32 id, u32 profile, u32 start)
{
	struct lab_gi *gi = find_gi(gpu, id);
	u32 size = profile < ARRAY_SIZE(compute_slices) ? compute_slices[profile] : 0, at;

	if (!gi)
		return -ENOENT;
	if (!size || size > gi->profile->slices || (start != ANY_START && !compute_is_legal(gi, start, size)))
		return -EINVAL;
	if (lab_take_fault(gpu, FAULT_INSTANCE))
		return -EIO;
	for (at = 0; at < gi->profile->slices; at++)
		if ((start == ANY_START || start == at) && compute_is_legal(gi, at, size) &&
		    compute_is_free(gi, at, size))
			return add_compute(gpu, gi, profile, at);
	return -ENOSPC;
}

static void free_ci(struct lab_ci *ci)
{
	proc_remove(ci->proc);
	list_del(&ci->node);
	kfree(ci);
}

static int destroy_ci(struct lab_gpu *gpu, u32 id, u32 compute)
{
	struct lab_gi *gi = find_gi(gpu, id);
	struct lab_ci *ci;

	if (!gi)
		return -ENOENT;
	if (has_vgpu(gpu, gi, true))
		return -EBUSY;
	list_for_each_entry(ci, &gi->computes, node)
		if (ci->id == compute) {
			free_ci(ci);
			return 0;
		}
	return -ENOENT;
}

/* The driver lets go of the GPU, or its virtual functions change: no instance survives that, nor does any vGPU. */
void lab_mig_clear(struct lab_gpu *gpu)
{
	struct lab_gi *gi, *next;
	struct lab_ci *ci, *after;
	struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		vgpu->gi = NULL;
	list_for_each_entry_safe(gi, next, &gpu->instances, node) {
		list_for_each_entry_safe(ci, after, &gi->computes, node)
			free_ci(ci);
		proc_remove(gi->proc);
		list_del(&gi->node);
		kfree(gi);
	}
}

/* Where a change needs a reset, it stays pending until nothing and nobody holds the GPU. */
static int set_mode(struct lab_gpu *gpu, bool mode)
{
	bool idle = list_empty(&gpu->vgpus) && list_empty(&gpu->instances) && !pci_num_vf(gpu->pdev);

	if (!gpu->nr_profiles)
		return -EOPNOTSUPP;
	if (gpu->mig_reset)
		gpu->mig_pending = mode;
	if (gpu->mig != mode && (!idle || (gpu->mig_reset && gpu->users > 1)))
		return -EBUSY;
	gpu->mig = gpu->mig_pending = mode;
	if (mode)
		gpu->heterogeneous = false;
	return 0;
}

/*
 *   mode 0|1                    by one of those that have the GPU open
 *   gi PROFILE START            START -1: any
 *   ci GPU-INSTANCE PROFILE START
 *   destroy GPU-INSTANCE [COMPUTE-INSTANCE]
 */
int lab_mig_command(struct lab_gpu *gpu, const char *buf)
{
	u32 first, second;
	int start;

	if (!gpu->pdev)
		return -ENODEV;
	if (gpu->lost)
		return -EIO;
	if (sscanf(buf, "mode %u", &first) == 1)
		return first > 1 ? -EINVAL : set_mode(gpu, first);
	if (sscanf(buf, "gi %u %d", &first, &start) == 2)
		return create_gi(gpu, first, start);
	if (sscanf(buf, "ci %u %u %d", &first, &second, &start) == 3)
		return create_ci(gpu, first, second, start);
	switch (sscanf(buf, "destroy %u %u", &first, &second)) {
	case 1:
		return destroy_gi(gpu, first);
	case 2:
		return destroy_ci(gpu, first, second);
	default:
		return -EINVAL;
	}
}

/*
 *   mode CURRENT PENDING
 *   made ID                     of the instance created last
 *   left PROFILE COUNT
 *   gi ID PROFILE START
 *   ci GPU-INSTANCE ID PROFILE START UUID
 */
ssize_t lab_mig_show(struct lab_gpu *gpu, char *buf)
{
	ssize_t len = sysfs_emit(buf, "mode %d %d\nmade %u\n", gpu->mig, gpu->mig_pending, gpu->made);
	struct lab_gi *gi;
	struct lab_ci *ci;
	unsigned int i;
	u32 first;

	for (i = 0; gpu->mig && i < gpu->nr_profiles; i++)
		len += sysfs_emit_at(buf, len, "left %u %u\n", gpu->profiles[i].id,
				     profile_left(gpu, &gpu->profiles[i], &first));
	list_for_each_entry(gi, &gpu->instances, node) {
		len += sysfs_emit_at(buf, len, "gi %u %u %u\n", gi->id, gi->profile->id, gi->start);
		list_for_each_entry(ci, &gi->computes, node)
			len += sysfs_emit_at(buf, len, "ci %u %u %u %u %pUl\n", gi->id, ci->id, ci->profile,
					     ci->start, &ci->uuid);
	}
	return len;
}
