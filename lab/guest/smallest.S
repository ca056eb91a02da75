# SPDX-License-Identifier: Apache-2.0
# A guest that is one boot sector: says on the serial port which PCI functions there are, one line "BB:DD.F VVVV:DDDD"
# each, then "vgpu-guest ready", sleeps, and powers off when the power button is pressed (virsh shutdown).
	.code16
	.globl _start

	.set COM1, 0x3f8
	.set PM1_STATUS, 0x600		# where SeaBIOS puts power management on pc and q35
	.set PM1_ENABLE, 0x602
	.set PM1_CONTROL, 0x604
	.set POWER_BUTTON, 0x100
	.set SOFT_OFF, 0x2000
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
	cmpb	last_bus, %al
	jbe	kind
	movb	%al, last_bus
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
	pushl	%eax
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
	popl	%eax
	pushl	%eax
	call	hex16
	movb	$':', %al
	call	putc
	popl	%eax
	shrl	$16, %eax
	call	hex16
	movw	$newline, %si
puts:
	lodsb
	testb	%al, %al
	jz	done
	call	putc
	jmp	puts

hex16:
	pushw	%ax
	movb	%ah, %al
	call	hex8
	popw	%ax
hex8:
	pushw	%ax
	shrb	$4, %al
	call	hex4
	popw	%ax
	andb	$15, %al
hex4:
	addb	$'0', %al
	cmpb	$'9', %al
	jbe	putc
	addb	$'a' - '9' - 1, %al
putc:
	pushw	%ax
	movw	$COM1 + 5, %dx
full:
	inb	%dx, %al
	testb	$0x20, %al
	jz	full
	popw	%ax
	movw	$COM1, %dx
	outb	%al, %dx
done:
	ret

ready:
	.ascii	"vgpu-guest ready"
newline:
	.asciz	"\r\n"
last_bus:
	.byte	0

	.org	446			# the table of partitions
	.org	510
	.word	0xaa55
