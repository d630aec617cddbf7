/* The Python frames of the calling thread, read without the GIL.
 *
 * A thread that runs an op has usually released the GIL, but its own frames stand still until the
 * op returns, so it may read them. In C: the interpreter's internal headers are no C++. */
#pragma once

#include <Python.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct txla_frame {
  void* next;         /* the frame to read next */
  PyCodeObject* code; /* borrowed */
  uintptr_t site;     /* tells apart any two instructions of living code objects */
  int offset;         /* of the instruction in bytes, for PyCode_Addr2Line */
};

/* Points at the innermost frame of a thread state. */
void txla_frames_begin(struct txla_frame* frame, PyThreadState* state);

/* Reads the next frame, moving outwards; 0 when there is none left (always, on a Python that this
 * file does not know). */
int txla_frames_next(struct txla_frame* frame);

#ifdef __cplusplus
}
#endif
