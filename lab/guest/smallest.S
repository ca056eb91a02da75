# SPDX-License-Identifier: Apache-2.0
# A guest that is one boot sector: says on the serial port which PCI functions there are, one line "BB:DD.F VVVV:DDDD"
# each, then "vgpu-guest ready", sleeps, and powers off when the power button is pressed (virsh shutdown).
	.code16
	.globl _start

	.include "smallest_common.S"
	.set SCI_VECTOR, 0x71		# IRQ 9

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

	movw	$ready, %si
	call	puts
	movw	$power_off, SCI_VECTOR * 4
	movw	$0, SCI_VECTOR * 4 + 2
	movb	$0xfb, %al		# of all interrupts only the one that ACPI sends
	outb	%al, $0x21
	movb	$0xfd, %al
	outb	%al, $0xa1
	sleep_until_power_off

	read_configuration

# The line of the function in %ebx whose device and vendor are in %eax
report:
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
