# SPDX-License-Identifier: Apache-2.0
# The smallest guest as UEFI starts it: one PE32+ file that does what smallest.S does. It writes to nothing but its stack
# and knows no address, so that firmware may load it anywhere and keep it from being written to.
	.code64
	.globl _start

	.include "smallest_common.S"
	.set FIRST_VECTOR, 0x20
	.set SCI_VECTOR, FIRST_VECTOR + 9
	.set APIC_TIMER, 0xfee00320
	.set MASKED, 0x10000

# PE/COFF specification: MS-DOS stub, signature, file header, optional header of PE32+, one section.
_start:
	.ascii	"MZ"
	.org	0x3c
	.long	signature - _start
signature:
	.ascii	"PE\0\0"
	.word	0x8664, 1		# x86-64, one section
	.long	0, 0, 0
	.word	section - optional, 0x0022	# executable, large addresses; without relocations and in need of none
optional:
	.word	0x20b, 0
	.long	code_end - code, 0, 0, code - _start, code - _start
	.quad	0
	.long	0x200, 0x200
	.word	0, 0, 0, 0, 0, 0
	.long	0, image_end - _start, code - _start, 0
	.word	10, 0x100		# an application of UEFI's that needs no executable data
	.quad	0, 0, 0, 0
	.long	0, 6
	.quad	0, 0, 0, 0, 0, 0
section:
	.ascii	".text\0\0\0"
	.long	code_end - code, code - _start, code_end - code, code - _start, 0, 0, 0
	.long	0x60000020		# code that is read and run

	.org	0x200
code:
	cli
	movl	$0x80000000, %ebx	# bus 0, device 0, function 0 of configuration mechanism 1
	xorl	%r12d, %r12d		# the last bus
scan:
	look_at_function
	movzbl	%al, %eax
	cmpl	%eax, %r12d
	cmovb	%eax, %r12d
	go_to_next_function
	movzbl	%al, %eax
	cmpl	%r12d, %eax
	jbe	scan

	leaq	ready(%rip), %rsi
	call	puts

# An interrupt table of our own on the stack, in which the vector of ACPI's interrupt powers off.
	subq	$4096, %rsp
	andq	$-16, %rsp
	leaq	power_off(%rip), %rax
	movw	%ax, SCI_VECTOR * 16(%rsp)
	movw	%cs, SCI_VECTOR * 16 + 2(%rsp)
	movw	$0x8e00, SCI_VECTOR * 16 + 4(%rsp)
	shrq	$16, %rax
	movw	%ax, SCI_VECTOR * 16 + 6(%rsp)
	shrq	$16, %rax
	movl	%eax, SCI_VECTOR * 16 + 8(%rsp)
	movq	%rsp, %rax
	pushq	%rax
	pushw	$4095
	lidt	(%rsp)
	movl	$APIC_TIMER, %eax
	movl	$MASKED, (%rax)		# the firmware's clock
	leaq	pic(%rip), %rsi
	movl	$(pic_end - pic) / 2, %ecx
	xorl	%edx, %edx
program:
	lodsb
	movb	%al, %dl
	lodsb
	outb	%al, %dx
	loop	program
	sleep_until_power_off

	read_configuration

# The line of the function in %ebx whose device and vendor are in %eax
report:
	movl	%eax, %edi
	say_function
	movl	%edi, %eax
	call	hex16
	movb	$':', %al
	call	putc
	movl	%edi, %eax
	shrl	$16, %eax
	call	hex16
	leaq	newline(%rip), %rsi
	say	%rax
pic:					# port and value: both interrupt controllers begin at FIRST_VECTOR, and send ACPI's alone
	.byte	0x20, 0x11, 0xa0, 0x11
	.byte	0x21, FIRST_VECTOR, 0xa1, FIRST_VECTOR + 8
	.byte	0x21, 4, 0xa1, 2
	.byte	0x21, 1, 0xa1, 1
	.byte	0x21, 0xfb, 0xa1, 0xfd
pic_end:
	.balign	0x200
code_end:
image_end:
