// SPDX-License-Identifier: GPL-2.0
/*
 * First process of a throw-away virtual machine: runs one instruction in a virtual machine of its own, says whether
 * that worked and switches off. Nested virtualisation that only pretends fails here and not in a guest's boot.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/reboot.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

static void load_modules(void)
{
	char path[64];
	int number, file;

	for (number = 0; number < 16; number++) {
		snprintf(path, sizeof(path), "/modules/%d.ko", number);
		file = open(path, O_RDONLY);
		if (file < 0)
			return;
		/* of the two vendors' modules one always refuses */
		syscall(SYS_finit_module, file, "", 0);
		close(file);
	}
}

static const char *nested_run(void)
{
	struct kvm_userspace_memory_region region = { .memory_size = 4096 };
	struct kvm_sregs sregs;
	struct kvm_regs regs = { .rflags = 2 };
	struct kvm_run *run;
	unsigned char *code;
	int kvm, vm, vcpu;

	kvm = open("/dev/kvm", O_RDWR);
	if (kvm < 0)
		return "no /dev/kvm inside";
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (vm < 0 || code == MAP_FAILED)
		return "no virtual machine inside";
	code[0] = 0xf4;	/* hlt */
	region.userspace_addr = (unsigned long)code;
	vcpu = ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) ? -1 : ioctl(vm, KVM_CREATE_VCPU, 0);
	if (vcpu < 0 || ioctl(vcpu, KVM_GET_SREGS, &sregs))
		return "no virtual processor inside";
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	run = mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (run == MAP_FAILED || ioctl(vcpu, KVM_SET_SREGS, &sregs) || ioctl(vcpu, KVM_SET_REGS, &regs))
		return "the virtual processor takes no state";
	if (ioctl(vcpu, KVM_RUN, 0) || run->exit_reason != KVM_EXIT_HLT)
		return "the nested guest did not run";
	return "nested guest ran";
}

int main(void)
{
	mount("dev", "/dev", "devtmpfs", 0, "");
	load_modules();
	freopen("/dev/ttyS0", "w", stdout);
	printf("\nprobe: %s\n", nested_run());
	fflush(stdout);
	tcdrain(1);
	reboot(LINUX_REBOOT_CMD_POWER_OFF);
	return 1;
}
