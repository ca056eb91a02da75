# SPDX-License-Identifier: Apache-2.0
# What both smallest guests do alike, included by each with \acc, the register of its width that is pushed (%ax, %rax):
# configuration space by mechanism 1, and lines on the serial port.
	.set COM1, 0x3f8
	.set PM1_ENABLE, 0x602		# where SeaBIOS on pc and q35, and OVMF on q35, put power management
	.set PM1_CONTROL, 0x604
	.set POWER_BUTTON, 0x100
	.set SOFT_OFF, 0x2000

# The function in %ebx: its line, if it is there. A bridge's subordinate bus, the last one behind it, is left in %al.
	.macro	look_at_function
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
	movb	$0x18, %cl
	call	config
	shrl	$16, %eax
	.endm

# The next function of a device that has several, or else the next device; its bus is left in %al.
	.macro	go_to_next_function
kind:
	movb	$0x0c, %cl
	call	config
	testl	$0x800000, %eax
	jnz	next_function
absent:
	testb	$7, %bh
	jnz	next_function
	addl	$0x800 - 0x100, %ebx
next_function:
	addl	$0x100, %ebx
	movl	%ebx, %eax
	shrl	$16, %eax
	.endm

# An interrupt that ACPI sends when the power button is pressed, and what it does. \awake follows every other one.
	.macro	sleep_until_power_off awake
	movw	$PM1_ENABLE, %dx
	movw	$POWER_BUTTON, %ax
	outw	%ax, %dx
	sti
sleep:
	hlt
	\awake
	jmp	sleep

power_off:
	movw	$PM1_CONTROL, %dx
	movw	$SOFT_OFF, %ax
	outw	%ax, %dx
	cli
	hlt
	.endm

# %eax: the register %cl of the function in %ebx
	.macro	read_configuration
config:
	movl	%ebx, %eax
	movb	%cl, %al
	movw	$0xcf8, %dx
	outl	%eax, %dx
	movw	$0xcfc, %dx
	inl	%dx, %eax
	ret
	.endm

# "BB:DD.F " of the function in %ebx
	.macro	say_function
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
	.endm

# The text at %si, and %ax, %al or its lower half in hexadecimal, and the character %al
	.macro	say acc
puts:
	lodsb
	testb	%al, %al
	jz	done
	call	putc
	jmp	puts

hex16:
	push	\acc
	movb	%ah, %al
	call	hex8
	pop	\acc
hex8:
	push	\acc
	shrb	$4, %al
	call	hex4
	pop	\acc
	andb	$15, %al
hex4:
	addb	$'0', %al
	cmpb	$'9', %al
	jbe	putc
	addb	$'a' - '9' - 1, %al
putc:
	push	\acc
	movw	$COM1 + 5, %dx
full:
	inb	%dx, %al
	testb	$0x20, %al
	jz	full
	pop	\acc
	movw	$COM1, %dx
	outb	%al, %dx
done:
	ret

ready:
	.ascii	"vgpu-guest ready"
newline:
	.asciz	"\r\n"
	.endm
