/* A CUDA driver with a GPU that is absent: XLA:GPU of jax 0.4.28 to 0.4.33 compiles for it.
 *
 * These releases ask the driver for a device before they compile, even for a described target.
 * The numbers are those of an H100; no function runs anything.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static char handle[64];

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int* version) { *version = 12040; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char* name, int size, int device) { strncpy(name, "NVIDIA H100", size); return 0; }
int cuDeviceGetPCIBusId(char* id, int size, int device) { strncpy(id, "0000:00:00.0", size); return 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int device) { *bytes = (size_t)80 << 30; return 0; }
int cuMemGetInfo_v2(size_t* free, size_t* total) { *free = *total = (size_t)80 << 30; return 0; }
int cuDeviceComputeCapability(int* major, int* minor, int device) { *major = 9; *minor = 0; return 0; }

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;      /* threads of a block */
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;                /* blocks of a grid */
    case 6: case 7: *value = 65535; break;
    case 8: *value = 49152; break;                     /* shared memory of a block */
    case 10: *value = 32; break;                       /* threads of a warp */
    case 12: case 82: *value = 65536; break;           /* registers */
    case 13: *value = 1980000; break;                  /* clock, kHz */
    case 16: *value = 132; break;                      /* multiprocessors */
    case 36: *value = 2619000; break;                  /* memory clock, kHz */
    case 37: *value = 5120; break;                     /* memory bus, bits */
    case 38: *value = 50 << 20; break;                 /* L2 cache */
    case 39: *value = 2048; break;                     /* threads of a multiprocessor */
    case 75: *value = 9; break;                        /* compute capability */
    case 81: *value = 233472; break;                   /* shared memory of a multiprocessor */
    case 97: *value = 232448; break;                   /* shared memory of a block, on request */
    case 106: *value = 32; break;                      /* blocks of a multiprocessor */
    default: *value = 0;
  }
  return 0;
}

int cuGetErrorName(int error, const char** name) { *name = "CUDA_ERROR"; return 0; }
int cuGetErrorString(int error, const char** text) { *text = "error"; return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { *context = handle; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { *flags = 0; *active = 0; return 0; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxGetCurrent(void** context) { *context = handle; return 0; }
int cuCtxSetCurrent(void* context) { return 0; }
int cuCtxGetDevice(int* device) { *device = 0; return 0; }
int cuCtxGetStreamPriorityRange(int* least, int* greatest) { *least = *greatest = 0; return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuStreamCreate(void** stream, unsigned flags) { *stream = handle; return 0; }
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) { *stream = handle; return 0; }
int cuEventCreate(void** event, unsigned flags) { *event = handle; return 0; }
int cuMemAlloc_v2(void** address, size_t bytes) { *address = malloc(64); return 0; }
int cuMemHostAlloc(void** address, size_t bytes, unsigned flags) { *address = malloc(bytes); return 0; }
