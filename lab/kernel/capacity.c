// SPDX-License-Identifier: GPL-2.0
/* Which vGPUs fit on a GPU, and their life: create, place, open, destroy. */
#include <linux/sched.h>
#include <linux/slab.h>
#include "vgpu_lab.h"

static atomic_t next_instance = ATOMIC_INIT(3251634000);

static unsigned int count_vgpus(struct lab_gpu *gpu)
{
	return list_count_nodes(&gpu->vgpus);
}

static bool overlaps(struct lab_gpu *gpu, const struct lab_vgpu *self, u32 start, u32 size)
{
	struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		if (vgpu != self && start < vgpu->placement + vgpu->type->place_size &&
		    vgpu->placement < start + size)
			return true;
	return false;
}

/* With equal sizes a place is any multiple of the size; with mixed sizes it is in the type's list. */
static bool place_is_legal(struct lab_gpu *gpu, const struct lab_type *type, u32 start)
{
	if (gpu->heterogeneous)
		return start < LAB_MAX_PLACES && test_bit(start, type->places);
	return start % type->place_size == 0 && start / type->place_size < type->max;
}

static int first_place(struct lab_gpu *gpu, const struct lab_type *type)
{
	u32 start;

	for (start = 0; start < LAB_MAX_PLACES; start++)
		if (place_is_legal(gpu, type, start) && !overlaps(gpu, NULL, start, type->place_size))
			return start;
	return -1;
}

/* The framebuffer of a GPU that is not in mixed-size mode is cut into equal parts. */
unsigned int lab_available(struct lab_gpu *gpu, const struct lab_type *type)
{
	struct lab_vgpu *first = list_first_entry_or_null(&gpu->vgpus, struct lab_vgpu, node);
	unsigned int used = count_vgpus(gpu), left = 0;
	u32 start;

	lockdep_assert_held(&gpu->lock);
	if (gpu->lost || type->gi_profile >= 0)
		return 0;
	if (!gpu->heterogeneous) {
		if (first && first->type->fb_mib != type->fb_mib)
			return 0;
		return used < type->max ? type->max - used : 0;
	}
	for (start = 0; type->place_size && start < LAB_MAX_PLACES; start++)
		left += place_is_legal(gpu, type, start) &&
			!overlaps(gpu, NULL, start, type->place_size);
	return left;
}

bool lab_creatable(struct lab_gpu *gpu, const struct lab_type *type)
{
	return lab_available(gpu, type) > 0;
}

/* The switched-on failure of the next create, if any; a hang ends late, not badly. */
static int fault_gate(struct lab_gpu *gpu)
{
	enum lab_fault fault;
	unsigned int value;

	mutex_lock(&gpu->lock);
	fault = gpu->fault == FAULT_OPEN ? FAULT_NONE : gpu->fault;
	value = gpu->fault_value;
	if ((fault == FAULT_BUSY || fault == FAULT_IO) && --gpu->fault_value == 0)
		gpu->fault = FAULT_NONE;
	mutex_unlock(&gpu->lock);
	switch (fault) {
	case FAULT_BUSY:
		return -EBUSY;
	case FAULT_IO:
		pr_err("NVRM: Failed to add vgpu create request: 0xffff\n");
		return -EIO;
	case FAULT_HANG:
		wait_event_timeout(gpu->released, READ_ONCE(gpu->fault) != FAULT_HANG,
				   secs_to_jiffies(value));
		mutex_lock(&gpu->lock);
		if (gpu->fault == FAULT_HANG)
			gpu->fault = FAULT_NONE;
		mutex_unlock(&gpu->lock);
		return 0;
	default:
		return 0;
	}
}

static struct lab_vgpu *on_device(struct lab_gpu *gpu, struct device *where)
{
	struct lab_vgpu *vgpu;

	list_for_each_entry(vgpu, &gpu->vgpus, node)
		if (vgpu->where == where)
			return vgpu;
	return NULL;
}

struct lab_vgpu *lab_vgpu_create(struct lab_gpu *gpu, const struct lab_type *type,
				 struct device *where, bool single, const guid_t *uuid)
{
	struct lab_vgpu *vgpu;
	int ret = fault_gate(gpu);

	if (ret)
		return ERR_PTR(ret);
	vgpu = kzalloc(sizeof(*vgpu), GFP_KERNEL);
	if (!vgpu)
		return ERR_PTR(-ENOMEM);
	mutex_lock(&gpu->lock);
	if (single && on_device(gpu, where)) {
		ret = -EPERM;
	} else if (!lab_creatable(gpu, type)) {
		pr_err("NVRM: Failed to add vgpu create request: 0x38\n");
		ret = -EIO;
	} else {
		vgpu->gpu = gpu;
		vgpu->type = type;
		vgpu->where = where;
		vgpu->instance = atomic_inc_return(&next_instance);
		vgpu->placement = type->place_size ? first_place(gpu, type) : NO_PLACEMENT;
		if (uuid)
			guid_copy(&vgpu->uuid, uuid);
		else
			guid_gen(&vgpu->uuid);
		list_add_tail(&vgpu->node, &gpu->vgpus);
	}
	mutex_unlock(&gpu->lock);
	if (!ret)
		return vgpu;
	kfree(vgpu);
	return ERR_PTR(ret);
}

void lab_vgpu_destroy(struct lab_vgpu *vgpu)
{
	struct lab_gpu *gpu = vgpu->gpu;

	mutex_lock(&gpu->lock);
	list_del(&vgpu->node);
	mutex_unlock(&gpu->lock);
	kfree(vgpu);
}

int lab_vgpu_open(struct lab_vgpu *vgpu)
{
	struct lab_gpu *gpu = vgpu->gpu;
	int ret = 0;

	mutex_lock(&gpu->lock);
	if (gpu->lost || gpu->fault == FAULT_OPEN) {
		if (gpu->fault == FAULT_OPEN && --gpu->fault_value == 0)
			gpu->fault = FAULT_NONE;
		ret = -EIO;
	} else {
		vgpu->open = true;
		vgpu->pid = task_tgid_nr(current);
	}
	mutex_unlock(&gpu->lock);
	return ret;
}

void lab_vgpu_close(struct lab_vgpu *vgpu)
{
	mutex_lock(&vgpu->gpu->lock);
	vgpu->open = false;
	vgpu->pid = 0;
	mutex_unlock(&vgpu->gpu->lock);
}

ssize_t lab_params_store(struct lab_vgpu *vgpu, const char *buf, size_t count)
{
	if (count >= LAB_TEXT)
		return -EINVAL;
	strscpy(vgpu->params, buf, LAB_TEXT);
	strim(vgpu->params);
	if (vgpu->params[0] == ' ')
		vgpu->params[0] = 0;
	return count;
}

ssize_t lab_placement_show(struct lab_vgpu *vgpu, char *buf)
{
	return vgpu->placement == NO_PLACEMENT ? -ENXIO : sysfs_emit(buf, "%u\n", vgpu->placement);
}

ssize_t lab_placement_store(struct lab_vgpu *vgpu, const char *buf, size_t count)
{
	struct lab_gpu *gpu = vgpu->gpu;
	ssize_t ret = count;
	u32 start;

	if (kstrtouint(buf, 10, &start))
		return -EINVAL;
	lockdep_assert_held(&gpu->lock);
	if (vgpu->placement == NO_PLACEMENT)
		ret = -EOPNOTSUPP;
	else if (vgpu->open)
		ret = -EBUSY;
	else if (!place_is_legal(gpu, vgpu->type, start) ||
		 overlaps(gpu, vgpu, start, vgpu->type->place_size))
		ret = -EINVAL;
	else
		vgpu->placement = start;
	return ret;
}

int lab_set_heterogeneous(struct lab_gpu *gpu, bool on)
{
	int ret = 0;

	mutex_lock(&gpu->lock);
	if (!list_empty(&gpu->vgpus))
		ret = -EBUSY;
	else
		gpu->heterogeneous = on;
	mutex_unlock(&gpu->lock);
	return ret;
}
