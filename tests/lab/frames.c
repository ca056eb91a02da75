/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a guest: "frames send IFACE HEX..." puts Ethernet frames on the wire as they are, "frames watch IFACE" prints the
 * name of each frame that comes in: the text behind "probe:" in it. Without a library it is so small that a seed takes it. */
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static unsigned char frame[2048];

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static void end(int code)
{
	for (;;)
		call(SYS_exit_group, code, 0, 0, 0, 0, 0);
}

static long opened(const char *name)
{
	unsigned short every = __builtin_bswap16(ETH_P_ALL);
	struct sockaddr_ll place = { .sll_family = AF_PACKET, .sll_protocol = every };
	struct packet_mreq all = { .mr_type = PACKET_MR_PROMISC };
	long wire = call(SYS_socket, AF_PACKET, SOCK_RAW, every, 0, 0, 0);
	struct ifreq card = { 0 };

	for (int at = 0; name[at] && at < IFNAMSIZ - 1; at++)
		card.ifr_name[at] = name[at];
	if (wire < 0 || call(SYS_ioctl, wire, SIOCGIFINDEX, (long)&card, 0, 0, 0))
		end(2);
	place.sll_ifindex = all.mr_ifindex = card.ifr_ifindex;
	if (call(SYS_bind, wire, (long)&place, sizeof(place), 0, 0, 0) ||
	    call(SYS_setsockopt, wire, SOL_PACKET, PACKET_ADD_MEMBERSHIP, (long)&all, sizeof(all), 0))
		end(2);
	return wire;
}

static int is_mark(const unsigned char *at)
{
	return at[0] == 'p' && at[1] == 'r' && at[2] == 'o' && at[3] == 'b' && at[4] == 'e' && at[5] == ':';
}

static int is_of_name(unsigned char one)
{
	return (one >= '0' && one <= '9') || ((one | 32) >= 'a' && (one | 32) <= 'z') || one == '-';
}

static void watch(long wire)
{
	for (;;) {
		struct sockaddr_ll from;
		int size = sizeof(from);
		long length = call(SYS_recvfrom, wire, (long)frame, sizeof(frame) - 8, 0, (long)&from, (long)&size);
		long at = 0, last;

		while (at + 6 < length && !is_mark(frame + at))
			at++;
		if (at + 6 >= length || from.sll_pkttype == PACKET_OUTGOING)
			continue;
		for (last = at += 6; last < length && is_of_name(frame[last]);)
			last++;
		frame[last] = '\n';
		call(SYS_write, 1, (long)(frame + at), last - at + 1, 0, 0, 0);
	}
}

static int digit(char one)
{
	return one <= '9' ? one - '0' : (one | 32) - 'a' + 10;
}

static int send_one(long wire, const char *hex)
{
	long length = 0;

	for (; hex[0] && hex[1] && length < (long)sizeof(frame); hex += 2)
		frame[length++] = digit(hex[0]) << 4 | digit(hex[1]);
	return call(SYS_sendto, wire, (long)frame, length, 0, 0, 0) != length;
}

__attribute__((used)) static void begin(long *stack)
{
	char **words = (char **)(stack + 1);
	int failed = 0;

	if (stack[0] >= 3 && words[1][0] == 'w')
		watch(opened(words[2]));
	for (long at = 3; at < stack[0]; at++)
		failed |= send_one(opened(words[2]), words[at]);
	end(failed);
}

__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
