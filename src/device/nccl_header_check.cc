// Holds our declarations of NCCL's interface to its own header, where a toolkit has one.
#include <nccl.h>

#include "nccl_api.h"

namespace dhs {
namespace {

static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclInt8 == ncclInt8 && kNcclFloat32 == ncclFloat32 && kNcclSum == ncclSum);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(NcclConfig().magic == kTheirs.magic);
static_assert(NcclConfig().cga_cluster_size == kTheirs.cgaClusterSize);
static_assert(NcclConfig().version == NCCL_VERSION(2, 14, 0));

// Parameters by their size: enums are ints, handles are pointers.
template <class Ours, class Theirs>
struct SameParameters;
template <class R, class... Ours, class T, class... Theirs>
struct SameParameters<R (*)(Ours...), T (*)(Theirs...)> {
  static constexpr bool value = ((sizeof(Ours) == sizeof(Theirs)) && ...);
};
template <class Ours, class Theirs>
constexpr bool same(Ours, Theirs) {
  return SameParameters<Ours, Theirs>::value;
}
static_assert(same(NcclApi().get_unique_id, &ncclGetUniqueId));
static_assert(same(NcclApi().init_rank, &ncclCommInitRankConfig));
static_assert(same(NcclApi().group_start, &ncclGroupStart));
static_assert(same(NcclApi().group_end, &ncclGroupEnd));
static_assert(same(NcclApi().abort, &ncclCommAbort));
static_assert(same(NcclApi().get_async_error, &ncclCommGetAsyncError));
static_assert(same(NcclApi().error_string, &ncclGetErrorString));
static_assert(same(NcclApi().all_gather, &ncclAllGather));
static_assert(same(NcclApi().all_reduce, &ncclAllReduce));
static_assert(same(NcclApi().reduce_scatter, &ncclReduceScatter));
static_assert(same(NcclApi().broadcast, &ncclBroadcast));

}  // namespace
}  // namespace dhs
