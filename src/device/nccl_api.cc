#include "nccl_api.h"

#include "dhisparse/base.h"
#include "library.h"

namespace dhs {

absl::StatusOr<NcclApi> NcclApi::load(const std::string& name) {
  DHS_ASSIGN_OR_RETURN(const Library library, Library::load(name));
  NcclApi api;
  DHS_RETURN_IF_ERROR(library.find("ncclGetUniqueId", api.get_unique_id));
  DHS_RETURN_IF_ERROR(library.find("ncclCommInitRankConfig", api.init_rank));
  DHS_RETURN_IF_ERROR(library.find("ncclGroupStart", api.group_start));
  DHS_RETURN_IF_ERROR(library.find("ncclGroupEnd", api.group_end));
  DHS_RETURN_IF_ERROR(library.find("ncclCommAbort", api.abort));
  DHS_RETURN_IF_ERROR(library.find("ncclCommGetAsyncError", api.get_async_error));
  DHS_RETURN_IF_ERROR(library.find("ncclGetErrorString", api.error_string));
  DHS_RETURN_IF_ERROR(library.find("ncclAllGather", api.all_gather));
  DHS_RETURN_IF_ERROR(library.find("ncclAllReduce", api.all_reduce));
  DHS_RETURN_IF_ERROR(library.find("ncclReduceScatter", api.reduce_scatter));
  DHS_RETURN_IF_ERROR(library.find("ncclBroadcast", api.broadcast));
  return api;
}

}  // namespace dhs
