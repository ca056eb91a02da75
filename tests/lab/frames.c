/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a guest: "frames send IFACE HEX..." puts Ethernet frames on the wire as they are, "frames watch IFACE" prints the
 * name of each frame that comes in: the text behind "probe:" in it. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <linux/if_ether.h>

static unsigned char frame[2048];

static int opened(const char *name)
{
	struct sockaddr_ll place = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct packet_mreq all = { .mr_type = PACKET_MR_PROMISC };
	int wire = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));

	place.sll_ifindex = all.mr_ifindex = if_nametoindex(name);
	if (wire < 0 || bind(wire, (struct sockaddr *)&place, sizeof(place)) ||
	    setsockopt(wire, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all))) {
		perror(name);
		exit(1);
	}
	return wire;
}

static void watch(int wire)
{
	for (;;) {
		struct sockaddr_ll from;
		socklen_t size = sizeof(from);
		ssize_t length = recvfrom(wire, frame, sizeof(frame), 0, (struct sockaddr *)&from, &size);
		unsigned char *mark = length > 0 ? memmem(frame, length, "probe:", 6) : NULL;

		if (!mark || from.sll_pkttype == PACKET_OUTGOING)
			continue;
		for (mark += 6; mark < frame + length && (isalnum(*mark) || *mark == '-'); mark++)
			putchar(*mark);
		putchar('\n');
		fflush(stdout);
	}
}

static int send_one(int wire, const char *hex)
{
	size_t length = strlen(hex) / 2;

	for (size_t at = 0; at < length && at < sizeof(frame); at++)
		sscanf(hex + 2 * at, "%2hhx", &frame[at]);
	return send(wire, frame, length, 0) == (ssize_t)length ? 0 : 1;
}

int main(int count, char **words)
{
	int failed = 0;

	if (count >= 3 && !strcmp(words[1], "watch"))
		watch(opened(words[2]));
	for (int at = 3; at < count; at++)
		failed |= send_one(opened(words[2]), words[at]);
	return failed;
}
