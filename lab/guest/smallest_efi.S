# SPDX-License-Identifier: Apache-2.0
# The smallest guest as UEFI starts it: one PE32+ file that does what smallest.S does. It writes to nothing but its stack
# and knows no address, so that firmware may load it anywhere and keep it from being written to.
	.code64
	.globl _start

	.set COM1, 0x3f8
	.set PM1_ENABLE, 0x602		# where OVMF puts power management on q35
	.set PM1_CONTROL, 0x604
	.set POWER_BUTTON, 0x100
	.set SOFT_OFF, 0x2000
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
	xorb	%cl, %cl
	call	config
	cmpw	$0xffff, %ax
	je	absent
	call	report
	movb	$0x08, %cl
	call	config
	shrl	$16, %eax
	cmpw	$0x0604, %ax
	jne	kind
	movb	$0x18, %cl		# a bridge: its subordinate bus is the last one behind it
	call	config
	shrl	$16, %eax
	movzbl	%al, %eax
	cmpl	%eax, %r12d
	cmovb	%eax, %r12d
kind:
	movb	$0x0c, %cl
	call	config
	testl	$0x800000, %eax
	jnz	next_function		# a device of several functions
absent:
	testb	$7, %bh
	jnz	next_function
	addl	$0x800 - 0x100, %ebx
next_function:
	addl	$0x100, %ebx
	movl	%ebx, %eax
	shrl	$16, %eax
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
	movw	$PM1_ENABLE, %dx
	movw	$POWER_BUTTON, %ax
	outw	%ax, %dx
	sti
sleep:
	hlt
	jmp	sleep

power_off:
	movw	$PM1_CONTROL, %dx
	movw	$SOFT_OFF, %ax
	outw	%ax, %dx
	cli
	hlt

# %eax: the register %cl of the function in %ebx
config:
	movl	%ebx, %eax
	movb	%cl, %al
	movw	$0xcf8, %dx
	outl	%eax, %dx
	movw	$0xcfc, %dx
	inl	%dx, %eax
	ret

# The line of the function in %ebx whose device and vendor are in %eax
report:
	movl	%eax, %edi
	movl	%ebx, %eax
	shrl	$16, %eax
	call	hex8
	movb	$':', %al
	call	putc
	movb	%bh, %al
	shrb	$3, %al
	call	hex8
	movb	$'.', %al
	call	putc
	movb	%bh, %al
	andb	$7, %al
	call	hex4
	movb	$' ', %al
	call	putc
	movl	%edi, %eax
	call	hex16
	movb	$':', %al
	call	putc
	movl	%edi, %eax
	shrl	$16, %eax
	call	hex16
	leaq	newline(%rip), %rsi
puts:
	lodsb
	testb	%al, %al
	jz	done
	call	putc
	jmp	puts

hex16:
	pushq	%rax
	movb	%ah, %al
	call	hex8
	popq	%rax
hex8:
	pushq	%rax
	shrb	$4, %al
	call	hex4
	popq	%rax
	andb	$15, %al
hex4:
	addb	$'0', %al
	cmpb	$'9', %al
	jbe	putc
	addb	$'a' - '9' - 1, %al
putc:
	pushq	%rax
	movw	$COM1 + 5, %dx
full:
	inb	%dx, %al
	testb	$0x20, %al
	jz	full
	popq	%rax
	movw	$COM1, %dx
	outb	%al, %dx
done:
	ret

ready:
	.ascii	"vgpu-guest ready"
newline:
	.asciz	"\r\n"
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
