// The functions of NCCL that are used, as libnccl.so.2 (2.14 or newer) exports them. Declared here,
// since a build does not need NCCL's header and a program not its library.
#pragma once

#include <absl/status/statusor.h>

#include <climits>
#include <cstddef>
#include <string>

namespace dhs {

inline constexpr char kNcclLibrary[] = "libnccl.so.2";

// ncclResult_t, ncclDataType_t and ncclRedOp_t are ints to the ABI.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclInt8 = 0;
inline constexpr int kNcclFloat32 = 7;
inline constexpr int kNcclSum = 0;

using NcclComm = struct ncclComm*;

struct NcclUniqueId {
  char bytes[128];
};

// The configuration of version 2.14: newer libraries fill in what it does not have.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;                // calls return at once and are polled, so they can be aborted
  int cga_cluster_size = INT_MIN;  // undefined; the padding of 2.14
};

struct NcclApi {
  int (*get_unique_id)(NcclUniqueId* id) = nullptr;
  int (*init_rank)(NcclComm* comm, int size, NcclUniqueId id, int rank, NcclConfig*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*abort)(NcclComm comm) = nullptr;
  int (*get_async_error)(NcclComm comm, int* result) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*all_gather)(const void* send, void* receive, size_t count, int type, NcclComm comm,
                    void* stream) = nullptr;
  int (*all_reduce)(const void* send, void* receive, size_t count, int type, int op, NcclComm comm,
                    void* stream) = nullptr;
  int (*reduce_scatter)(const void* send, void* receive, size_t count, int type, int op,
                        NcclComm comm, void* stream) = nullptr;
  int (*broadcast)(const void* send, void* receive, size_t count, int type, int root, NcclComm comm,
                   void* stream) = nullptr;

  // NOT_FOUND with the loader's words.
  static absl::StatusOr<NcclApi> load(const std::string& library);
};

}  // namespace dhs
