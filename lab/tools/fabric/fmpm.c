/* SPDX-License-Identifier: Apache-2.0 */
/* fmpm: lists, activates and deactivates partitions; arguments, answers and exit status as NVIDIA's. A program of its
 * own, as NVIDIA's is: an interpreter's start would be most of what an agent takes to look at an emulated host. The
 * service answers with fmReturn_t on a line, and what is to be printed after it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PORT 6666
#define MAX_PARTITIONS 64
#define SECONDS 5
enum { SUCCESS = 0, BADPARAM = -1, CONNECTION_NOT_VALID = -9 };

struct call {
	const char *option, *name, *failure;
	int takes_value;
};

static const struct call calls[] = {
	{"-l", "list", "Failed to get partition list.", 0},
	{"-a", "activate", "Failed to activate partition.", 1},
	{"-d", "deactivate", "Failed to deactivate partition.", 1},
	{"--set-activated-list", "set", "Failed to set activated partitions.", 1},
	{"--get-nvlink-failed-devices", "failed", "Failed to NVLink failed devices.", 0},
	{"--list-unsupported-partitions", "unsupported", "Failed to list unsupported partitions.", 0},
};

static const char usage[] =
	"-l : List partitions\n"
	"-a <Partition ID> : Activate partition\n"
	"-d <Partition ID> : Deactivate partition\n"
	"--hostname : hostname or IP address (TCP socket) of Fabric Manager.\n"
	"--unix-domain-socket : UNIX domain socket path for Fabric Manager connection\n"
	"--get-nvlink-failed-devices : Query all NVLink failed devices\n"
	"--list-unsupported-partitions : Query all unsupported fabric partitions\n"
	"--set-activated-list <Partition IDs> : Set a list of currently activated fabric partitions.\n"
	"-v : Show version\n";

static const struct call *call_of(const char *option)
{
	size_t at;

	for (at = 0; at < sizeof(calls) / sizeof(*calls); at++)
		if (!strcmp(option, calls[at].option))
			return &calls[at];
	return NULL;
}

static int connected(const char *path, const char *address)
{
	struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = SECONDS};
	int link = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM, 0), failed;

	setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(link, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (path) {
		snprintf(local.sun_path, sizeof(local.sun_path), "%s", path);
		failed = connect(link, (struct sockaddr *)&local, sizeof(local));
	} else {
		failed = inet_pton(AF_INET, address, &tcp.sin_addr) != 1 ||
			 connect(link, (struct sockaddr *)&tcp, sizeof(tcp));
	}
	if (!failed)
		return link;
	close(link);
	return -1;
}

/* Whether each of "1,2,3" is the id of a partition that may be. */
static int are_ids(const char *text)
{
	char *end;

	for (; *text; text = *end ? end + 1 : end) {
		long id = strtol(text, &end, 10);

		if (end == text || (*end && *end != ',') || id < 0 || id >= MAX_PARTITIONS)
			return 0;
	}
	return 1;
}

static int ask(int link, const struct call *call, const char *ids)
{
	FILE *talk = fdopen(link, "r+");
	char piece[4096];
	int code;
	size_t size;

	fprintf(talk, "{\"call\": \"%s\", \"ids\": [%s]}\n", call->name, ids);
	if (fflush(talk) || fscanf(talk, "%d%*c", &code) != 1) {
		printf("Failed to connect to Fabric Manager instance.\n");
		return CONNECTION_NOT_VALID;
	}
	if (code != SUCCESS)
		printf("%s fmReturn: %d\n", call->failure, code);
	while (code == SUCCESS && (size = fread(piece, 1, sizeof(piece), talk)) > 0)
		fwrite(piece, 1, size, stdout);
	return code;
}

int main(int count, char **words)
{
	const char *path = NULL, *address = "127.0.0.1", *ids = "";
	const struct call *chosen = NULL;
	int at, link;

	if (count < 2 || (count == 2 && !strcmp(words[1], "-h")))
		return fputs(usage, stdout) == EOF;
	if (count == 2 && !strcmp(words[1], "-v"))
		return puts("1.0.1") == EOF;
	for (at = 1; at < count; at++) {
		const struct call *call = call_of(words[at]);
		const char **value = !strcmp(words[at], "--hostname") ? &address
				     : !strcmp(words[at], "--unix-domain-socket") ? &path
				     : call && call->takes_value ? &ids : NULL;

		if (!call && !value) {
			fprintf(stderr, "Invalid argument.\n\n");
			return BADPARAM & 0xff;
		}
		if (value && at + 1 == count) {
			fprintf(stderr, "Error: %s option requires a value.\n", words[at]);
			return 1;
		}
		if (call) {
			chosen = call;
			ids = "";
		}
		if (value)
			*value = words[++at];
	}
	if (!chosen)
		return SUCCESS;
	if (!are_ids(ids)) {
		printf("Invalid Partition ID.\n");
		return BADPARAM & 0xff;
	}
	link = connected(path, address);
	if (link < 0) {
		printf("Failed to connect to Fabric Manager instance.\n");
		return CONNECTION_NOT_VALID & 0xff;
	}
	return ask(link, chosen, ids) & 0xff;
}
