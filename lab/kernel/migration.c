// SPDX-License-Identifier: GPL-2.0
/*
 * Migration of a vGPU (VFIO migration v2: PRE_COPY, P2P, STOP_COPY), alike for both frameworks. What moves is a stream of
 * records of one size: a header (what the target checks), the content (so much as the GPU's switch says, made out of a
 * seed, which the target checks as well), and in the end the bytes of the device that its guest wrote.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vfio.h>
#include "vgpu_lab.h"

#define RECORD SZ_4K
#define MAGIC 0x5550474e	/* "NGPU" */

enum { HEADER, CONTENT, DEVICE };

struct record {
	u32 magic, kind;
	u64 index;		/* of the part of the content */
	union {
		struct {
			u32 version, type, seed, parts;
		};
		struct {
			u32 size;
			u8 device[PCI_CFG_SPACE_SIZE];
		};
		u32 words[(RECORD - 16) / sizeof(u32)];
	};
};
static_assert(sizeof(struct record) == RECORD);

/* What the file of a transfer reads or writes. The vGPU holds the file open while it is in a state that transfers. */
struct lab_stream {
	struct mutex lock;	/* inside the vGPU's */
	struct file *file;
	struct lab_migration *of;	/* NULL: the transfer is over */
	struct record record;	/* under way */
	size_t at;
	u64 parts, next, again;	/* of the content: all, of these sent or taken, changed since they were sent */
	ktime_t changed;	/* counted until then */
	u32 seed;
	bool running, begun, ended;
};

static struct lab_migration *migration_of(struct vfio_device *vdev)
{
	return container_of(vdev->mig_ops, struct lab_migration, ops);
}

static bool fails(const struct lab_migration *of, enum lab_fault fault)
{
	guard(mutex)(&lab_lock);
	return lab_take_fault(of->gpu, fault);
}

static u32 content_word(u32 seed, u64 index, unsigned int at)
{
	return (seed ^ (u32)index) * 2654435761u + at;
}

/* A running vGPU changes so much of its content, but never more than there is. */
static void count_changes(struct lab_stream *stream)
{
	u64 kib = ktime_ms_delta(ktime_get(), stream->changed) * stream->of->gpu->migration.dirty_kib_s / MSEC_PER_SEC;
	u64 parts = kib / (RECORD / SZ_1K);

	if (!stream->running || !parts)
		return;
	stream->again = min(stream->again + parts, stream->next);
	stream->changed = ktime_get();
}

/* Bytes that can be read now, without those of the end. */
static u64 bytes_left(const struct lab_stream *stream)
{
	return (!stream->begun + stream->parts - stream->next) * RECORD + (RECORD - stream->at);
}

/* The next record to send; false: there is none now. */
static bool make_record(struct lab_stream *stream)
{
	const struct lab_migration *of = stream->of;
	struct record *record = &stream->record;
	unsigned int i;

	memset(record, 0, sizeof(*record));
	record->magic = MAGIC;
	if (!stream->begun) {
		record->kind = HEADER;
		record->version = of->gpu->migration.newest;
		record->type = of->type->id;
		record->seed = stream->seed;
		record->parts = stream->parts;
		stream->begun = true;
	} else if (stream->next < stream->parts || stream->again) {
		record->kind = CONTENT;
		record->index = stream->next < stream->parts ? stream->next++ : --stream->again;
		for (i = 0; i < ARRAY_SIZE(record->words); i++)
			record->words[i] = content_word(stream->seed, record->index, i);
	} else if (!stream->running && !stream->ended) {
		record->kind = DEVICE;
		record->size = of->size;
		memcpy(record->device, of->device, of->size);
		stream->ended = true;
	} else {
		return false;
	}
	stream->at = 0;
	return true;
}

static ssize_t save_read(struct file *file, char __user *buf, size_t count, loff_t *unused)
{
	struct lab_stream *stream = file->private_data;
	size_t done = 0, some;

	guard(mutex)(&stream->lock);
	if (!stream->of)
		return -ENODEV;
	if (fails(stream->of, stream->running ? FAULT_PRE_COPY : FAULT_STOP_COPY))
		return -EIO;
	count_changes(stream);
	while (done < count && (stream->at < RECORD || make_record(stream))) {
		some = min(count - done, RECORD - stream->at);
		if (copy_to_user(buf + done, (u8 *)&stream->record + stream->at, some))
			return -EFAULT;
		stream->at += some;
		done += some;
	}
	return done || !stream->running ? done : -ENOMSG;
}

static long save_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct lab_stream *stream = file->private_data;
	struct vfio_precopy_info info;

	if (cmd != VFIO_MIG_GET_PRECOPY_INFO)
		return -ENOTTY;
	if (copy_from_user(&info, (void __user *)arg, sizeof(info)))
		return -EFAULT;
	if (info.argsz < sizeof(info))
		return -EINVAL;
	guard(mutex)(&stream->lock);
	if (!stream->of || !stream->running)
		return -EINVAL;
	count_changes(stream);
	info.flags = 0;
	info.initial_bytes = bytes_left(stream);
	info.dirty_bytes = stream->again * RECORD;
	return copy_to_user((void __user *)arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static int take_header(struct lab_stream *stream)
{
	const struct record *record = &stream->record;
	const struct lab_migration *of = stream->of;
	const struct lab_moves *moves = &of->gpu->migration;

	if (stream->begun || record->type != of->type->id || record->version < moves->oldest ||
	    record->version > moves->newest) {
		dev_err(of->vdev->dev,
			"NVRM: a vGPU of type %u and version %#x is refused: this is type %u, versions %#x to %#x\n",
			record->type, record->version, of->type->id, moves->oldest, moves->newest);
		return -EINVAL;
	}
	stream->seed = record->seed;
	stream->parts = record->parts;
	stream->begun = true;
	return 0;
}

static int take_content(struct lab_stream *stream)
{
	const struct record *record = &stream->record;
	unsigned int i;

	if (!stream->begun || record->index > stream->next || record->index >= stream->parts)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(record->words); i++)
		if (record->words[i] != content_word(stream->seed, record->index, i))
			return -EINVAL;
	stream->next += record->index == stream->next;
	return 0;
}

static int take_record(struct lab_stream *stream)
{
	const struct record *record = &stream->record;

	if (record->magic != MAGIC || stream->ended)
		return -EINVAL;
	switch (record->kind) {
	case HEADER:
		return take_header(stream);
	case CONTENT:
		return take_content(stream);
	default:
		stream->ended = stream->begun && stream->next == stream->parts && record->size == stream->of->size;
		return stream->ended ? 0 : -EINVAL;
	}
}

static ssize_t resume_write(struct file *file, const char __user *buf, size_t count, loff_t *unused)
{
	struct lab_stream *stream = file->private_data;
	size_t done = 0, some;
	int ret;

	guard(mutex)(&stream->lock);
	if (!stream->of)
		return -ENODEV;
	if (fails(stream->of, FAULT_LOAD))
		return -EIO;
	for (; done < count; done += some) {
		some = min(count - done, RECORD - stream->at);
		if (copy_from_user((u8 *)&stream->record + stream->at, buf + done, some))
			return -EFAULT;
		stream->at += some;
		if (stream->at < RECORD)
			continue;
		ret = take_record(stream);
		if (ret)
			return ret;
		stream->at = 0;
	}
	return done;
}

static int stream_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static const struct file_operations save_file = {
	.owner = THIS_MODULE, .read = save_read, .unlocked_ioctl = save_ioctl, .compat_ioctl = compat_ptr_ioctl,
	.release = stream_release,
};
static const struct file_operations resume_file = {
	.owner = THIS_MODULE, .write = resume_write, .release = stream_release,
};

/* The file of a transfer, for who asked for its state; the vGPU has it, too. */
static struct file *begin(struct lab_migration *of, bool save, bool running)
{
	struct lab_stream *stream = kzalloc(sizeof(*stream), GFP_KERNEL_ACCOUNT);

	if (!stream)
		return ERR_PTR(-ENOMEM);
	mutex_init(&stream->lock);
	stream->of = of;
	stream->running = running;
	stream->changed = ktime_get();
	stream->seed = of->seed;
	stream->parts = DIV_ROUND_UP(of->gpu->migration.size_kib, RECORD / SZ_1K);
	stream->at = save ? RECORD : 0;
	stream->file = anon_inode_getfile("vgpu-migration", save ? &save_file : &resume_file, stream,
					  save ? O_RDONLY : O_WRONLY);
	if (IS_ERR(stream->file)) {
		struct file *refused = stream->file;

		kfree(stream);
		return refused;
	}
	stream_open(file_inode(stream->file), stream->file);
	of->stream = stream;
	return get_file(stream->file);
}

static void end(struct lab_migration *of)
{
	struct lab_stream *stream = of->stream;

	if (!stream)
		return;
	scoped_guard(mutex, &stream->lock)
		stream->of = NULL;
	of->stream = NULL;
	fput(stream->file);
}

/* All of a vGPU has come: it becomes its state. */
static int take_over(struct lab_migration *of)
{
	struct lab_stream *stream = of->stream;

	guard(mutex)(&stream->lock);
	if (!stream->ended || stream->at)
		return -EINVAL;
	memcpy(of->device, stream->record.device, of->size);
	of->seed = stream->seed;
	return 0;
}

static struct file *step(struct lab_migration *of, enum vfio_device_mig_state next)
{
	bool running = next == VFIO_DEVICE_STATE_PRE_COPY || next == VFIO_DEVICE_STATE_PRE_COPY_P2P;
	bool saves = running || next == VFIO_DEVICE_STATE_STOP_COPY;
	int ret = 0;

	if (saves && of->stream) {
		guard(mutex)(&of->stream->lock);
		count_changes(of->stream);
		of->stream->running = running;
		return NULL;
	}
	if (saves || next == VFIO_DEVICE_STATE_RESUMING)
		return fails(of, saves ? FAULT_SAVE : FAULT_RESUME) ? ERR_PTR(-EIO) : begin(of, saves, running);
	if (of->state == VFIO_DEVICE_STATE_RESUMING)
		ret = take_over(of);
	if (!ret)
		end(of);
	return ERR_PTR(ret);
}

static struct file *set_state(struct vfio_device *vdev, enum vfio_device_mig_state wanted)
{
	struct lab_migration *of = migration_of(vdev);
	enum vfio_device_mig_state next;
	struct file *file = NULL;
	int ret;

	guard(mutex)(&of->lock);
	while (of->state != wanted) {
		ret = vfio_mig_get_next_state(vdev, of->state, wanted, &next);
		if (ret)
			return ERR_PTR(ret);
		file = step(of, next);
		if (IS_ERR(file))
			return file;
		of->state = next;
	}
	return file;
}

static int get_state(struct vfio_device *vdev, enum vfio_device_mig_state *state)
{
	struct lab_migration *of = migration_of(vdev);

	guard(mutex)(&of->lock);
	*state = of->state;
	return 0;
}

/* Header and end belong to it: QEMU takes the size of its buffer from here. */
static int get_data_size(struct vfio_device *vdev, unsigned long *size)
{
	struct lab_migration *of = migration_of(vdev);
	struct lab_stream *stream;

	guard(mutex)(&of->lock);
	stream = of->stream;
	if (!stream) {
		*size = (DIV_ROUND_UP(of->gpu->migration.size_kib, RECORD / SZ_1K) + 2) * RECORD;
		return 0;
	}
	guard(mutex)(&stream->lock);
	count_changes(stream);
	*size = bytes_left(stream) + (stream->again + !stream->ended) * RECORD;
	return 0;
}

/* Before the device is registered. `device`: the bytes that a guest writes, of `size`. */
void lab_migration_init(struct lab_migration *of, struct vfio_device *vdev, u8 *device, u32 size)
{
	mutex_init(&of->lock);
	of->vdev = vdev;
	of->device = device;
	of->size = size;
	of->ops = (struct vfio_migration_ops){ set_state, get_state, get_data_size };
	vdev->mig_ops = &of->ops;
	vdev->migration_flags = VFIO_MIGRATION_STOP_COPY | VFIO_MIGRATION_P2P | VFIO_MIGRATION_PRE_COPY;
}

void lab_migration_open(struct lab_migration *of, const struct lab_type *type)
{
	scoped_guard(mutex, &lab_lock)
		of->gpu = lab_vgpu_of(of->vdev->dev)->gpu;
	of->type = type;
	of->seed = of->gpu->migration.seed;
	of->state = VFIO_DEVICE_STATE_RUNNING;
}

/* Whatever was transferred ends: at a reset, and when the device is closed. */
void lab_migration_reset(struct lab_migration *of)
{
	guard(mutex)(&of->lock);
	end(of);
	of->state = VFIO_DEVICE_STATE_RUNNING;
}
