/* CUDA's driver without a GPU: an event has the time at which it was recorded, and has always been passed. */
#include <stdlib.h>
#include <time.h>

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int fails; /* what each call answers, where it is not 0 */
int is_behind; /* whether no event has been passed */

int cuEventCreate(void **event, unsigned flags) { return *event = calloc(1, sizeof(double)), fails; }
int cuEventDestroy_v2(void *event) { return free(event), 0; }
int cuEventRecord(void *event, void *stream) { return *(double *)event = now_ms(), fails; }
int cuEventQuery(void *event) { return fails ? fails : is_behind ? 600 : 0; }
int cuEventElapsedTime(float *found, void *from, void *to) { return *found = *(double *)to - *(double *)from, fails; }
int cuCtxGetCurrent(void **context) { return *context = &fails, 0; }
int cuCtxSetCurrent(void *context) { return 0; }
