#include "backend/testing/device_trap.h"

namespace seq2seq {

Status TrapDevice() { return Unsupported("this build has no CUDA device to trap"); }

}  // namespace seq2seq
