#include "dhisparse/base.h"
#include "kernels/cuda/dispatch.h"

namespace dhs {

void no_cuda_version(const char* op) {
  check_failed(__FILE__, __LINE__, op, "this program holds no CUDA kernels");
}

}  // namespace dhs
