// Which GPUs a program's kernels run on, by the list that nvcc compiled for.
#pragma once

#include <string_view>

namespace dhs {

// 80 stands for compute capability 8.0. `architectures` is CMake's list, "80-real,90a-real": real
// code of 80 runs on 8.0 and what follows within 8; of 90a on 9.0 alone; virtual code of 80, and
// "80" without a suffix, on everything from 8.0 on.
bool has_kernels_for(int capability, std::string_view architectures);

}  // namespace dhs
