/* SPDX-License-Identifier: Apache-2.0 */
/* Asks NVML for what "nvidia-smi -q -x" tells of every GPU and prints it. Names and signatures are of the NVML API
 * Reference; what this host's driver does not have is printed as N/A, as nvidia-smi does. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum shape { TEXT, NUMBER, PAIR, WIDE, BY_KIND, RECORD, LIST };

struct question {
	const char *function;
	enum shape shape;
	unsigned int kinds;	/* BY_KIND: asked for 0 .. kinds - 1 */
};

static const struct question questions[] = {
	{"nvmlDeviceGetName", TEXT}, {"nvmlDeviceGetBrand", NUMBER}, {"nvmlDeviceGetArchitecture", NUMBER},
	{"nvmlDeviceGetDisplayMode", NUMBER}, {"nvmlDeviceGetDisplayActive", NUMBER},
	{"nvmlDeviceGetPersistenceMode", NUMBER}, {"nvmlDeviceGetMigMode", PAIR},
	{"nvmlDeviceGetAccountingMode", NUMBER}, {"nvmlDeviceGetAccountingBufferSize", NUMBER},
	{"nvmlDeviceGetSerial", TEXT}, {"nvmlDeviceGetUUID", TEXT}, {"nvmlDeviceGetMinorNumber", NUMBER},
	{"nvmlDeviceGetVbiosVersion", TEXT}, {"nvmlDeviceGetMultiGpuBoard", NUMBER}, {"nvmlDeviceGetBoardId", NUMBER},
	{"nvmlDeviceGetBoardPartNumber", TEXT}, {"nvmlDeviceGetModuleId", NUMBER},
	{"nvmlDeviceGetInforomImageVersion", TEXT}, {"nvmlDeviceGetGpuOperationMode", PAIR},
	{"nvmlDeviceGetGspFirmwareVersion", TEXT}, {"nvmlDeviceGetGspFirmwareMode", PAIR},
	{"nvmlDeviceGetVirtualizationMode", NUMBER}, {"nvmlDeviceGetHostVgpuMode", NUMBER},
	{"nvmlDeviceGetPciInfo_v3", RECORD}, {"nvmlDeviceGetMaxPcieLinkGeneration", NUMBER},
	{"nvmlDeviceGetGpuMaxPcieLinkGeneration", NUMBER}, {"nvmlDeviceGetCurrPcieLinkGeneration", NUMBER},
	{"nvmlDeviceGetMaxPcieLinkWidth", NUMBER}, {"nvmlDeviceGetCurrPcieLinkWidth", NUMBER},
	{"nvmlDeviceGetPcieReplayCounter", NUMBER}, {"nvmlDeviceGetPcieThroughput", BY_KIND, 2},
	{"nvmlDeviceGetFanSpeed", NUMBER}, {"nvmlDeviceGetPerformanceState", NUMBER},
	{"nvmlDeviceGetCurrentClocksEventReasons", WIDE}, {"nvmlDeviceGetSupportedClocksEventReasons", WIDE},
	{"nvmlDeviceGetMemoryInfo", RECORD}, {"nvmlDeviceGetBAR1MemoryInfo", RECORD},
	{"nvmlDeviceGetComputeMode", NUMBER}, {"nvmlDeviceGetUtilizationRates", RECORD},
	{"nvmlDeviceGetEncoderUtilization", PAIR}, {"nvmlDeviceGetDecoderUtilization", PAIR},
	{"nvmlDeviceGetJpgUtilization", PAIR}, {"nvmlDeviceGetOfaUtilization", PAIR},
	{"nvmlDeviceGetEncoderStats", RECORD}, {"nvmlDeviceGetFBCStats", RECORD}, {"nvmlDeviceGetEccMode", PAIR},
	{"nvmlDeviceGetRetiredPagesPendingStatus", NUMBER}, {"nvmlDeviceGetRemappedRows", RECORD},
	{"nvmlDeviceGetTemperature", BY_KIND, 1}, {"nvmlDeviceGetTemperatureThreshold", BY_KIND, 4},
	{"nvmlDeviceGetPowerUsage", NUMBER}, {"nvmlDeviceGetPowerManagementLimit", NUMBER},
	{"nvmlDeviceGetPowerManagementDefaultLimit", NUMBER}, {"nvmlDeviceGetEnforcedPowerLimit", NUMBER},
	{"nvmlDeviceGetPowerManagementLimitConstraints", PAIR}, {"nvmlDeviceGetClockInfo", BY_KIND, 4},
	{"nvmlDeviceGetMaxClockInfo", BY_KIND, 4}, {"nvmlDeviceGetApplicationsClock", BY_KIND, 2},
	{"nvmlDeviceGetDefaultApplicationsClock", BY_KIND, 2}, {"nvmlDeviceGetComputeRunningProcesses_v3", LIST},
	{"nvmlDeviceGetGraphicsRunningProcesses_v3", LIST},
};

static void *library;
static unsigned int calls;

static void *function(const char *name)
{
	return dlsym(library, name);
}

static void print(const char *name, int status, const void *at, size_t size)
{
	const unsigned char *bytes = at;

	printf("  <%s>", name);
	if (status)
		printf("N/A");
	while (!status && size--)
		printf("%02x", *bytes++);
	printf("</%s>\n", name);
}

static void ask(void *gpu, const struct question *question)
{
	int (*call)() = function(question->function);
	unsigned int kind, pair[2] = {0}, count = 64;
	static char text[65536];
	unsigned long long wide = 0;

	if (!call) {
		print(question->function, 1, NULL, 0);
		return;
	}
	calls += question->shape == BY_KIND ? question->kinds : 1;
	switch (question->shape) {
	case TEXT:
		printf("  <%s>%s\n", question->function, call(gpu, text, 96u) ? "N/A" : text);
		break;
	case NUMBER:
		print(question->function, call(gpu, &pair[0]), pair, sizeof(pair[0]));
		break;
	case PAIR:
		print(question->function, call(gpu, &pair[0], &pair[1]), pair, sizeof(pair));
		break;
	case WIDE:
		print(question->function, call(gpu, &wide), &wide, sizeof(wide));
		break;
	case BY_KIND:
		for (kind = 0; kind < question->kinds; kind++)
			print(question->function, call(gpu, kind, &pair[0]), pair, sizeof(pair[0]));
		break;
	case RECORD:
		print(question->function, call(gpu, text), text, 64);
		break;
	case LIST:
		print(question->function, call(gpu, &count, text), &count, sizeof(count));
		break;
	}
}

static int ecc_errors(void *gpu)
{
	int (*call)() = function("nvmlDeviceGetTotalEccErrors");
	unsigned int type, counter;
	unsigned long long errors;

	for (type = 0; call && type < 2; type++)
		for (counter = 0; counter < 2; counter++, calls++)
			print("ecc_errors", call(gpu, type, counter, &errors), &errors, sizeof(errors));
	return 0;
}

int main(void)
{
	int (*by_index)(), (*count_of)(), (*driver)();
	char version[96] = "";
	unsigned int gpus = 0, at, question;
	void *gpu;

	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library || ((int (*)())function("nvmlInit_v2"))())
		return 1;
	count_of = function("nvmlDeviceGetCount_v2");
	by_index = function("nvmlDeviceGetHandleByIndex_v2");
	driver = function("nvmlSystemGetDriverVersion");
	if (count_of(&gpus) || driver(version, 96u))
		return 1;
	printf("<driver>%s</driver>\n", version);
	for (at = 0; at < gpus; at++) {
		if (by_index(at, &gpu))
			return 1;
		printf("<gpu id=\"%u\">\n", at);
		for (question = 0; question < sizeof(questions) / sizeof(*questions); question++)
			ask(gpu, &questions[question]);
		ecc_errors(gpu);
		printf("</gpu>\n");
	}
	printf("<calls>%u</calls>\n", calls + 4 + gpus);
	return ((int (*)())function("nvmlShutdown"))();
}
