# SPDX-License-Identifier: Apache-2.0
# A guest that is one boot sector: says on the serial port which PCI functions there are, one line "BB:DD.F VVVV:DDDD"
# each, then "vgpu-guest ready", sleeps, and powers off when the power button is pressed (virsh shutdown).
# With COUNTING it says before what the register of its vGPU (lab/kernel, LAB_REGISTER) reads, "held RRRRRRRR", writes it
# once, and once a second says how often it did so and what the register reads, "CCCCCCCC RRRRRRRR": what a move of the VM
# must leave as it is.
	.code16
	.globl _start

	.include "smallest_common.S"
	.set SCI_VECTOR, 0x71		# IRQ 9
	.set REGISTER, 0xf8
	.set WRITTEN, 0x5eed1e57
	.set TICKS, 18			# of IRQ 0, a second

	.ifdef	COUNTING
	.set INTERRUPTS, 0xfa
	.else
	.set INTERRUPTS, 0xfb
	.endif

# Of IRQ 0, whose handler is the BIOS's
	.macro	say_once_a_second
	decb	ticks
	jnz	sleep
	movb	$TICKS, ticks
	movl	seconds, %eax
	incl	seconds
	call	hex32
	movb	$' ', %al
	call	putc
	movl	vgpu, %ebx
	movb	$REGISTER, %cl
	call	config
	call	hex32
	movw	$newline, %si
	call	puts
	.endm

_start:
	ljmp	$0, $flat
flat:
	cli
	xorw	%ax, %ax
	movw	%ax, %ds
	movw	%ax, %ss
	movw	$0x7c00, %sp
	movl	$0x80000000, %ebx	# bus 0, device 0, function 0 of configuration mechanism 1
scan:
	look_at_function
	cmpb	last_bus, %al
	jbe	kind
	movb	%al, last_bus
	go_to_next_function
	cmpb	last_bus, %al
	jbe	scan

	.ifdef	COUNTING
	movw	$held, %si
	call	puts
	movl	vgpu, %ebx
	movb	$REGISTER, %cl
	call	config
	call	hex32
	movw	$newline, %si
	call	puts
	.endif
	movw	$ready, %si
	call	puts
	movw	$power_off, SCI_VECTOR * 4
	movw	$0, SCI_VECTOR * 4 + 2
	movb	$INTERRUPTS, %al	# the one that ACPI sends, and the timer's for who counts
	outb	%al, $0x21
	movb	$0xfd, %al
	outb	%al, $0xa1
	.ifdef	COUNTING
	movl	vgpu, %ebx
	movb	$REGISTER, %cl
	call	config
	movl	$WRITTEN, %eax
	outl	%eax, %dx
	sleep_until_power_off say_once_a_second

hex32:
	pushl	%eax
	shrl	$16, %eax
	call	hex16
	popl	%eax
	jmp	hex16
held:
	.asciz	"held "
seconds:
	.long	0
vgpu:
	.long	0
ticks:
	.byte	TICKS
	.else
	sleep_until_power_off
	.endif

	read_configuration

# The line of the function in %ebx whose device and vendor are in %eax
report:
	.ifdef	COUNTING
	cmpw	$0x10de, %ax
	jne	other
	movl	%ebx, vgpu
other:
	.endif
	pushl	%eax
	say_function
	popl	%eax
	pushl	%eax
	call	hex16
	movb	$':', %al
	call	putc
	popl	%eax
	shrl	$16, %eax
	call	hex16
	movw	$newline, %si
	say	%ax
last_bus:
	.byte	0

	.org	446			# the table of partitions
	.org	510
	.word	0xaa55
