// SPDX-License-Identifier: GPL-2.0
/* Which vGPUs fit on a GPU, and their life: create, place, open, destroy. */
#include <linux/sched.h>
#include <linux/slab.h>
#include "vgpu_lab.h"

static u32 next_instance = 3251634000;

static bool is_free(struct lab_gpu *gpu, const struct lab_vgpu *self, u32 start, u32 size)
{
	struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		if (vgpu != self && start < vgpu->placement + vgpu->type->place_size &&
		    vgpu->placement < start + size)
			return false;
	return true;
}

/* With equal sizes a place is any multiple of the size; with mixed sizes it is in the type's list. */
static bool is_legal(struct lab_gpu *gpu, const struct lab_type *type, u32 start)
{
	if (start >= LAB_MAX_PLACES)
		return false;
	if (gpu->heterogeneous)
		return test_bit(start, type->places);
	return start % type->place_size == 0 && start / type->place_size < type->max;
}

/* The legal and free places of a type; *first gets the lowest. */
static unsigned int places_left(struct lab_gpu *gpu, const struct lab_type *type, u32 *first)
{
	unsigned int left = 0;
	u32 start = LAB_MAX_PLACES;

	*first = NO_PLACEMENT;
	while (type->place_size && start--)
		if (is_legal(gpu, type, start) && is_free(gpu, NULL, start, type->place_size)) {
			*first = start;
			left++;
		}
	return left;
}

/* A GPU instance carries vGPUs of one size. */
static unsigned int left_on(struct lab_gpu *gpu, const struct lab_gi *gi, const struct lab_type *type)
{
	unsigned int used = 0;
	struct lab_vgpu *vgpu;

	if (gi->profile->id != type->gi_profile)
		return 0;
	list_for_each_entry(vgpu, &gpu->vgpus, node) {
		if (vgpu->gi == gi && vgpu->type->fb_mib != type->fb_mib)
			return 0;
		used += vgpu->gi == gi;
	}
	return used < type->per_gi ? type->per_gi - used : 0;
}

/* How many more vGPUs of a MIG-backed type the GPU instances take; *first gets the first instance with room. */
static unsigned int left_on_instances(struct lab_gpu *gpu, const struct lab_type *type, const struct lab_gi **first)
{
	unsigned int here, left = 0;
	struct lab_gi *gi;

	*first = NULL;
	list_for_each_entry(gi, &gpu->instances, node) {
		here = left_on(gpu, gi, type);
		if (here && !*first)
			*first = gi;
		left += here;
	}
	return left;
}

/* A GPU that is not in mixed-size mode is cut into equal parts by its first vGPU. */
unsigned int lab_available(struct lab_gpu *gpu, const struct lab_type *type)
{
	struct lab_vgpu *first = list_first_entry_or_null(&gpu->vgpus, struct lab_vgpu, node);
	u32 unused, used = list_count_nodes(&gpu->vgpus);
	const struct lab_gi *gi;

	if (gpu->lost || gpu->mig != (type->gi_profile >= 0))
		return 0;
	if (gpu->mig)
		return left_on_instances(gpu, type, &gi);
	if (gpu->heterogeneous)
		return places_left(gpu, type, &unused);
	if (first && first->type->fb_mib != type->fb_mib)
		return 0;
	return used < type->max ? type->max - used : 0;
}

/* Counts a failure down that was switched on for so many times. */
bool lab_take_fault(struct lab_gpu *gpu, enum lab_fault fault)
{
	if (gpu->fault != fault)
		return false;
	if (--gpu->fault_value == 0)
		gpu->fault = FAULT_NONE;
	return true;
}

/* A hang ends late, not badly: the create goes on as if nothing had been. */
static void hang(struct lab_gpu *gpu)
{
	wait_event_timeout(gpu->released, READ_ONCE(gpu->fault) != FAULT_HANG,
			   secs_to_jiffies(READ_ONCE(gpu->fault_value)));
	guard(mutex)(&lab_lock);
	if (gpu->fault == FAULT_HANG)
		gpu->fault = FAULT_NONE;
}

struct lab_vgpu *lab_vgpu_on(struct lab_gpu *gpu, struct device *parent)
{
	struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		if (vgpu->parent == parent)
			return vgpu;
	return NULL;
}

struct lab_vgpu *lab_vgpu_of(struct device *owner)
{
	struct lab_gpu *gpu;
	struct lab_vgpu *vgpu;

	list_for_each_entry(gpu, &lab_gpus, node)
		list_for_each_entry(vgpu, &gpu->vgpus, node)
			if (vgpu->owner == owner)
				return vgpu;
	return NULL;
}

/* As many as there are pieces are never made: no type allows it. */
static u32 free_piece(const struct lab_gpu *gpu)
{
	DECLARE_BITMAP(taken, LAB_MAX_VGPUS) = { 0 };
	const struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		__set_bit(vgpu->piece, taken);
	return find_first_zero_bit(taken, LAB_MAX_VGPUS - 1);
}

/* What the guest keeps there. It outlives guest and process, until the vGPU is destroyed. */
u8 *lab_vgpu_memory(struct device *owner)
{
	struct lab_vgpu *vgpu;

	guard(mutex)(&lab_lock);
	vgpu = lab_vgpu_of(owner);
	return vgpu->gpu->memory[vgpu->piece];
}

int lab_vgpu_create(struct lab_gpu *gpu, const struct lab_type *type, struct device *parent,
		    struct device *owner, bool single, const guid_t *uuid)
{
	struct lab_vgpu *vgpu;

	if (READ_ONCE(gpu->fault) == FAULT_HANG)
		hang(gpu);
	guard(mutex)(&lab_lock);
	if (lab_take_fault(gpu, FAULT_BUSY))
		return -EBUSY;
	if (single && lab_vgpu_on(gpu, parent))
		return -EPERM;
	if (lab_take_fault(gpu, FAULT_IO) || !lab_available(gpu, type)) {
		pr_err("NVRM: Failed to add vgpu create request: 0x38\n");
		return -EIO;
	}
	vgpu = kzalloc(sizeof(*vgpu), GFP_KERNEL);
	if (!vgpu)
		return -ENOMEM;
	vgpu->gpu = gpu;
	vgpu->type = type;
	vgpu->parent = parent;
	vgpu->owner = owner;
	vgpu->instance = ++next_instance;
	vgpu->piece = free_piece(gpu);
	places_left(gpu, type, &vgpu->placement);
	left_on_instances(gpu, type, &vgpu->gi);
	if (uuid)
		guid_copy(&vgpu->uuid, uuid);
	else
		guid_gen(&vgpu->uuid);
	list_add_tail(&vgpu->node, &gpu->vgpus);
	return 0;
}

int lab_vgpu_destroy(struct device *owner)
{
	struct lab_vgpu *vgpu;

	guard(mutex)(&lab_lock);
	vgpu = lab_vgpu_of(owner);
	if (!vgpu)
		return -EPERM;
	if (vgpu->open)
		return -EBUSY;
	if (!lab_take_fault(vgpu->gpu, FAULT_KEEP))
		memset(vgpu->gpu->memory[vgpu->piece], 0, LAB_REGISTER_SIZE);
	list_del(&vgpu->node);
	kfree(vgpu);
	return 0;
}

const struct lab_type *lab_vgpu_open(struct device *owner)
{
	struct lab_vgpu *vgpu;

	guard(mutex)(&lab_lock);
	vgpu = lab_vgpu_of(owner);
	if (!vgpu)
		return ERR_PTR(-ENODEV);
	if (vgpu->gpu->lost || lab_take_fault(vgpu->gpu, FAULT_OPEN))
		return ERR_PTR(-EIO);
	vgpu->open = true;
	vgpu->pid = task_tgid_nr(current);
	return vgpu->type;
}

void lab_vgpu_close(struct device *owner)
{
	guard(mutex)(&lab_lock);
	lab_vgpu_of(owner)->open = false;
}

int lab_vgpu_place(struct lab_vgpu *vgpu, u32 start)
{
	if (vgpu->placement == NO_PLACEMENT)
		return -EOPNOTSUPP;
	if (vgpu->open)
		return -EBUSY;
	if (!is_legal(vgpu->gpu, vgpu->type, start) ||
	    !is_free(vgpu->gpu, vgpu, start, vgpu->type->place_size))
		return -EINVAL;
	vgpu->placement = start;
	return 0;
}
