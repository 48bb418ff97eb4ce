// NVTX is headers only: without a profiler a range costs one load and a branch.
#include "dhisparse/device.h"

#ifdef DHS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace dhs {

#ifdef DHS_NVTX
TraceRange::TraceRange(const char* name) { nvtxRangePushA(name); }
TraceRange::~TraceRange() { nvtxRangePop(); }
#else
TraceRange::TraceRange(const char*) {}
TraceRange::~TraceRange() = default;
#endif

}  // namespace dhs
