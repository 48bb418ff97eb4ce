#include "nccl_group.h"

#include <cuda_runtime_api.h>

#include <set>
#include <thread>

#include "cuda_backend.h"
#include "cuda_error.h"
#include "dhisparse/base.h"
#include "nccl_api.h"
#include "rank_barrier.h"

namespace dhs {
namespace {

// One rank's communicator. Its mutex lets another thread abort it between two calls of the owner.
class NcclRank {
 public:
  using Call = std::function<int(NcclComm)>;

  NcclRank(const NcclApi& api, NcclComm comm) : api_(api), comm_(comm) {}

  // Queues one exchange, unless the group has ended or this rank was aborted; NCCL's result.
  int queue(const RankBarrier& group, const Call& call) {
    int result = kNcclSuccess;
    {
      MutexLock lock(mutex_);
      if (comm_ == nullptr || !group.status().ok()) return kNcclSuccess;
      result = call(comm_);
      ++num_queued_;
    }
    return wait_while_in_progress(result);
  }

  int wait_while_in_progress(int result) {
    while (result == kNcclInProgress) {
      std::this_thread::yield();
      MutexLock lock(mutex_);
      if (comm_ == nullptr) return kNcclSuccess;
      const int answer = api_.get_async_error(comm_, &result);
      if (answer != kNcclSuccess) result = answer;
    }
    return result;
  }

  // What it has queued beyond `num_done` exchanges will never be joined, or is not wanted.
  void abort_beyond(int64_t num_done) {
    MutexLock lock(mutex_);
    if (comm_ == nullptr || num_queued_ <= num_done) return;
    api_.abort(comm_);
    comm_ = nullptr;
  }
  void abort() { abort_beyond(-1); }

  int64_t num_queued() const {
    MutexLock lock(mutex_);
    return num_queued_;
  }

 private:
  const NcclApi& api_;
  mutable Mutex mutex_;
  NcclComm comm_ DHS_GUARDED_BY(mutex_);  // null: aborted
  int64_t num_queued_ DHS_GUARDED_BY(mutex_) = 0;
};

struct NcclGroup {
  NcclGroup(NcclApi loaded, int size) : api(loaded), barrier(size) {}

  void end(absl::Status why) {
    barrier.abort(std::move(why));
    for (const auto& rank : ranks) rank->abort();
  }

  const NcclApi api;
  RankBarrier barrier;
  std::vector<std::unique_ptr<NcclRank>> ranks;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
  void all_gather(const void* send, void* receive, int64_t bytes, Stream stream) override;
  void all_reduce_sum(float* data, int64_t count, Stream stream) override;
  void reduce_scatter_sum(const float* send, float* receive, int64_t count, Stream stream) override;
  void broadcast(void* data, int64_t bytes, int root, Stream stream) override;
  void barrier() override { group_->barrier.enter(); }
  bool can_be_captured() const override { return true; }
  void abort() override {
    group_->end(absl::AbortedError(absl::StrCat("the group of rank ", rank_, " was told to stop")));
  }
  absl::Status status() const override { return group_->barrier.status(); }

 private:
  NcclRank& self() const { return *group_->ranks[static_cast<size_t>(rank_)]; }
  // Queues the exchange; a failure ends the group, since the others would wait for this rank.
  void queue(const char* what, const NcclRank::Call& call);

  const std::shared_ptr<NcclGroup> group_;
  const int rank_;
};

// Exchanges that this rank has joined may still run on the other GPUs: they are left alone.
NcclCommunicator::~NcclCommunicator() {
  group_->barrier.abort(
      absl::AbortedError(absl::StrCat("rank ", rank_, " has left its group of ", size())));
  const int64_t num_joined = self().num_queued();
  for (const auto& rank : group_->ranks) rank->abort_beyond(num_joined);
  self().abort();
}

void NcclCommunicator::queue(const char* what, const NcclRank::Call& call) {
  const int result = self().queue(group_->barrier, call);
  if (result == kNcclSuccess) return;
  log_error("nccl: ", what, " of rank ", rank_, ": ", group_->api.error_string(result));
  group_->end(absl::InternalError(
      absl::StrCat("nccl: ", what, " of rank ", rank_, ": ", group_->api.error_string(result))));
}

void NcclCommunicator::all_gather(const void* send, void* receive, int64_t bytes, Stream stream) {
  queue("all_gather", [&](NcclComm comm) {
    return group_->api.all_gather(send, receive, static_cast<size_t>(bytes), kNcclInt8, comm,
                                  stream.handle);
  });
}

void NcclCommunicator::all_reduce_sum(float* data, int64_t count, Stream stream) {
  queue("all_reduce_sum", [&](NcclComm comm) {
    return group_->api.all_reduce(data, data, static_cast<size_t>(count), kNcclFloat32, kNcclSum,
                                  comm, stream.handle);
  });
}

void NcclCommunicator::reduce_scatter_sum(const float* send, float* receive, int64_t count,
                                          Stream stream) {
  queue("reduce_scatter_sum", [&](NcclComm comm) {
    return group_->api.reduce_scatter(send, receive, static_cast<size_t>(count), kNcclFloat32,
                                      kNcclSum, comm, stream.handle);
  });
}

void NcclCommunicator::broadcast(void* data, int64_t bytes, int root, Stream stream) {
  DHS_CHECK(root >= 0 && root < size(), "root ", root, " of ", size(), " ranks");
  queue("broadcast", [&](NcclComm comm) {
    return group_->api.broadcast(data, data, static_cast<size_t>(bytes), kNcclInt8, root, comm,
                                 stream.handle);
  });
}

absl::Status check_ordinals(const std::vector<int>& ordinals) {
  int num_gpus = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&num_gpus); error != cudaSuccess) {
    cudaGetLastError();  // it has been heard
    return absl::FailedPreconditionError(absl::StrCat("no GPU: ", cuda_error_text(error)));
  }
  std::set<int> seen;
  for (int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= num_gpus) {
      return absl::FailedPreconditionError(
          absl::StrCat("GPU ", ordinal, " is not there, ", num_gpus,
                       " GPUs are visible, the first is 0; choose one of these"));
    }
    if (!seen.insert(ordinal).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("GPU ", ordinal, " is named twice; each rank needs one of its own"));
    }
  }
  return absl::OkStatus();
}

// Every rank's communicator begins to connect; the caller waits for each.
int start_ranks(NcclGroup& group, const std::vector<int>& ordinals) {
  const NcclApi& api = group.api;
  NcclUniqueId id{};
  int result = api.get_unique_id(&id);
  if (result != kNcclSuccess) return result;
  api.group_start();
  const int size = static_cast<int>(ordinals.size());
  std::vector<NcclComm> comms(ordinals.size(), nullptr);
  for (int rank = 0; rank < size && result == kNcclSuccess; ++rank) {
    NcclConfig config;
    const auto index = static_cast<size_t>(rank);
    check_cuda(cudaSetDevice(ordinals[index]), "choose the device");
    result = api.init_rank(&comms[index], size, id, rank, &config);
    if (result == kNcclInProgress) result = kNcclSuccess;
  }
  const int ended = api.group_end();
  for (NcclComm comm : comms) group.ranks.push_back(std::make_unique<NcclRank>(api, comm));
  return result == kNcclSuccess ? ended : result;
}

int connect(NcclGroup& group, const std::vector<int>& ordinals) {
  const int started = start_ranks(group, ordinals);
  if (started != kNcclInProgress) return started;
  for (const auto& rank : group.ranks) {
    const int result = rank->wait_while_in_progress(kNcclInProgress);
    if (result != kNcclSuccess) return result;
  }
  return kNcclSuccess;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> open_nccl_group_of(
    const std::string& library, const std::vector<int>& ordinals) {
  const absl::StatusOr<NcclApi> api = NcclApi::load(library);
  if (!api.ok()) return absl::FailedPreconditionError(api.status().message());
  DHS_RETURN_IF_ERROR(check_ordinals(ordinals));
  auto group = std::make_shared<NcclGroup>(*api, static_cast<int>(ordinals.size()));
  int current = 0;
  check_cuda(cudaGetDevice(&current), "ask for the device");
  const int result = connect(*group, ordinals);
  check_cuda(cudaSetDevice(current), "choose the device");
  if (result != kNcclSuccess) {
    const absl::Status status = absl::FailedPreconditionError(
        absl::StrCat("nccl: connecting ", ordinals.size(), " GPUs: ", api->error_string(result)));
    group->end(status);
    return status;
  }
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (size_t rank = 0; rank < ordinals.size(); ++rank) {
    ranks.push_back(std::make_unique<NcclCommunicator>(group, static_cast<int>(rank)));
  }
  return ranks;
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> open_nccl_group(
    const std::vector<int>& ordinals) {
  return open_nccl_group_of(kNcclLibrary, ordinals);
}

}  // namespace dhs
