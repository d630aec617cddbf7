#define Py_BUILD_CORE_MODULE 1
#include "python/frames.h"

/* Each Python stores its frames in another way; later ones are unknown here and give no frames. */
#if PY_VERSION_HEX >= 0x030f0000

void txla_frames_begin(struct txla_frame* frame, PyThreadState* state) {
  (void)state;
  frame->next = NULL;
}

int txla_frames_next(struct txla_frame* frame) {
  (void)frame;
  return 0;
}

#elif PY_VERSION_HEX >= 0x030b0000

#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe.h>
#else
#include <internal/pycore_frame.h>
#endif
#if PY_VERSION_HEX < 0x030c0000
#include <internal/pycore_code.h>
#endif

void txla_frames_begin(struct txla_frame* frame, PyThreadState* state) {
#if PY_VERSION_HEX >= 0x030d0000
  frame->next = state->current_frame;
#else
  frame->next = state->cframe ? state->cframe->current_frame : NULL;
#endif
}

/* The code of a frame, or NULL for one that the interpreter uses for itself. */
static PyCodeObject* code_of(_PyInterpreterFrame* frame) {
#if PY_VERSION_HEX >= 0x030e0000
  PyObject* executable = PyStackRef_AsPyObjectBorrow(frame->f_executable);
#elif PY_VERSION_HEX >= 0x030d0000
  PyObject* executable = frame->f_executable;
#else
  PyObject* executable = (PyObject*)frame->f_code;
#endif
#if PY_VERSION_HEX >= 0x030c0000
  /* 3: FRAME_OWNED_BY_CSTACK, later ..._INTERPRETER; the frames of C code that calls Python. */
  if (frame->owner >= 3) return NULL;
#endif
  return executable != NULL && PyCode_Check(executable) ? (PyCodeObject*)executable : NULL;
}

int txla_frames_next(struct txla_frame* result) {
  _PyInterpreterFrame* frame = result->next;
  while (frame != NULL) {
    PyCodeObject* code = code_of(frame);
    if (code != NULL) {
#if PY_VERSION_HEX >= 0x030d0000
      result->site = (uintptr_t)frame->instr_ptr;
#else
      result->site = (uintptr_t)frame->prev_instr;
#endif
      result->code = code;
      result->offset = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
      result->next = frame->previous;
      return 1;
    }
    frame = frame->previous;
  }
  result->next = NULL;
  return 0;
}

#else /* 3.10 */

#include <frameobject.h>

void txla_frames_begin(struct txla_frame* frame, PyThreadState* state) {
  frame->next = state->frame;
}

int txla_frames_next(struct txla_frame* result) {
  PyFrameObject* frame = result->next;
  if (frame == NULL) return 0;
  result->code = frame->f_code;
  result->offset = frame->f_lasti * (int)sizeof(_Py_CODEUNIT);
  /* Objects are 16-byte aligned at addresses of 47 bits, so 20 bits are left for the offset. */
  result->site = ((uintptr_t)frame->f_code << 16) ^ (uintptr_t)result->offset;
  result->next = frame->f_back;
  return 1;
}

#endif
