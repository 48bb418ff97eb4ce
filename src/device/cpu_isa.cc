#include <cstdlib>
#include <cstring>

#include "dhisparse/base.h"
#include "dhisparse/device.h"

namespace dhs {
namespace {

CpuIsa best_supported() {
  for (CpuIsa isa : {CpuIsa::kAvx512Bf16, CpuIsa::kAvx512, CpuIsa::kAvx2}) {
    if (cpu_supports(isa)) return isa;
  }
  return CpuIsa::kBase;
}

// DHS_CPU_ISA exists so that tests and operators can hold a machine to an older instruction set.
CpuIsa detect() {
  const CpuIsa best = best_supported();
  const char* wanted = std::getenv("DHS_CPU_ISA");
  if (wanted == nullptr) return best;
  for (CpuIsa isa : {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16}) {
    if (std::strcmp(wanted, cpu_isa_name(isa)) != 0) continue;
    if (cpu_supports(isa)) return isa;
    log_warning("DHS_CPU_ISA=", wanted, " is not supported here; using ", cpu_isa_name(best));
    return best;
  }
  log_warning("DHS_CPU_ISA=", wanted, " is not one of base, avx2, avx512, avx512bf16; ignored");
  return best;
}

}  // namespace

bool cpu_supports(CpuIsa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case CpuIsa::kBase:
      return true;
    case CpuIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case CpuIsa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case CpuIsa::kAvx512Bf16:
      return cpu_supports(CpuIsa::kAvx512) && __builtin_cpu_supports("avx512bf16");
  }
  return false;
}

CpuIsa cpu_isa() {
  static const CpuIsa isa = detect();
  return isa;
}

const char* cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kBase:
      return "base";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512:
      return "avx512";
    case CpuIsa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "?";
}

}  // namespace dhs
