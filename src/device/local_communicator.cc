// Ranks that read each other's memory. On a CUDA stream the data takes the way over host memory.
#include <algorithm>
#include <cstring>

#include "cuda_backend.h"
#include "dhisparse/base.h"
#include "dhisparse/communicator.h"
#include "rank_barrier.h"

namespace dhs {
namespace {

// What the ranks of a group share. A rank's entry is written by it before the barrier is entered
// and read by the others until it is exited.
struct LocalGroup {
  explicit LocalGroup(int size) : barrier(size), published(static_cast<size_t>(size)) {}

  RankBarrier barrier;
  std::vector<std::byte*> published;
};

// An array of the caller as this thread can touch it: itself, or a copy of device memory. Buffers
// are kept, so that a steady exchange allocates nothing.
class HostCopy {
 public:
  std::byte* open(void* data, int64_t bytes, Stream stream) {
    DHS_CHECK(bytes >= 0, "an exchange of ", bytes, " bytes");
    if (stream.handle == nullptr) return static_cast<std::byte*>(data);
    DHS_CHECK(&copy_and_wait_cuda != nullptr, kNoCudaInProgram);
    if (buffer_.size() < static_cast<size_t>(bytes)) buffer_.resize(static_cast<size_t>(bytes));
    return buffer_.data();
  }
  std::byte* open_filled(const void* data, int64_t bytes, Stream stream) {
    std::byte* host = open(const_cast<void*>(data), bytes, stream);
    if (stream.handle != nullptr) copy_and_wait_cuda(host, data, bytes, stream);
    return host;
  }
  void write_back(void* data, int64_t bytes, Stream stream) const {
    if (stream.handle != nullptr) copy_and_wait_cuda(data, buffer_.data(), bytes, stream);
  }

 private:
  std::vector<std::byte> buffer_;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~LocalCommunicator() override {
    end(absl::StrCat("rank ", rank_, " has left its group of ", size()));
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->published.size()); }
  void all_gather(const void* send, void* receive, int64_t bytes, Stream stream) override;
  void all_reduce_sum(float* data, int64_t count, Stream stream) override;
  void reduce_scatter_sum(const float* send, float* receive, int64_t count, Stream stream) override;
  void broadcast(void* data, int64_t bytes, int root, Stream stream) override;
  void barrier() override;
  bool can_be_captured() const override { return false; }
  void abort() override { end(absl::StrCat("the group of rank ", rank_, " was told to stop")); }
  absl::Status status() const override { return group_->barrier.status(); }

 private:
  void end(const std::string& why) { group_->barrier.abort(absl::AbortedError(why)); }
  // Shows `data` to the others; false when they will not come.
  bool meet(std::byte* data) {
    group_->published[static_cast<size_t>(rank_)] = data;
    return group_->barrier.enter();
  }
  std::byte* bytes_of(int rank) const { return group_->published[static_cast<size_t>(rank)]; }
  float* floats_of(int rank) const { return reinterpret_cast<float*>(bytes_of(rank)); }
  // sums[i] = element `index + i` of every rank, added in ascending order of rank.
  void sum_ranks(float* sums, int64_t index, int64_t count) const;

  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
  HostCopy send_copy_;
  HostCopy receive_copy_;
};

void LocalCommunicator::sum_ranks(float* sums, int64_t index, int64_t count) const {
  for (int64_t i = 0; i < count; ++i) {
    float sum = floats_of(0)[index + i];
    for (int rank = 1; rank < size(); ++rank) sum += floats_of(rank)[index + i];
    sums[i] = sum;
  }
}

void LocalCommunicator::all_gather(const void* send, void* receive, int64_t bytes, Stream stream) {
  if (!meet(send_copy_.open_filled(send, bytes, stream))) return;
  std::byte* host = receive_copy_.open(receive, bytes * size(), stream);
  for (int rank = 0; rank < size() && bytes > 0; ++rank) {
    std::byte* place = host + rank * bytes;
    if (place != bytes_of(rank)) std::memcpy(place, bytes_of(rank), static_cast<size_t>(bytes));
  }
  group_->barrier.exit();
  receive_copy_.write_back(receive, bytes * size(), stream);
}

// Each rank sums one part and writes it to all: nobody else touches that part, so it works in
// place.
void LocalCommunicator::all_reduce_sum(float* data, int64_t count, Stream stream) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (!meet(send_copy_.open_filled(data, bytes, stream))) return;
  const int64_t part = ceil_div(count, size());
  const int64_t begin = std::min(count, rank_ * part);
  const int64_t end = std::min(count, begin + part);
  sum_ranks(floats_of(rank_) + begin, begin, end - begin);
  for (int rank = 0; rank < size() && begin < end; ++rank) {
    if (rank == rank_) continue;
    std::copy(floats_of(rank_) + begin, floats_of(rank_) + end, floats_of(rank) + begin);
  }
  group_->barrier.exit();
  send_copy_.write_back(data, bytes, stream);
}

void LocalCommunicator::reduce_scatter_sum(const float* send, float* receive, int64_t count,
                                           Stream stream) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (!meet(send_copy_.open_filled(send, bytes * size(), stream))) return;
  std::byte* host = receive_copy_.open(receive, bytes, stream);
  sum_ranks(reinterpret_cast<float*>(host), rank_ * count, count);
  group_->barrier.exit();
  receive_copy_.write_back(receive, bytes, stream);
}

void LocalCommunicator::broadcast(void* data, int64_t bytes, int root, Stream stream) {
  DHS_CHECK(root >= 0 && root < size(), "root ", root, " of ", size(), " ranks");
  const bool is_root = rank_ == root;
  std::byte* host =
      is_root ? send_copy_.open_filled(data, bytes, stream) : send_copy_.open(data, bytes, stream);
  if (!meet(host)) return;
  if (!is_root && bytes > 0) std::memcpy(host, bytes_of(root), static_cast<size_t>(bytes));
  group_->barrier.exit();
  if (!is_root) send_copy_.write_back(data, bytes, stream);
}

void LocalCommunicator::barrier() { group_->barrier.enter(); }

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size) {
  DHS_CHECK(size >= 1, "a group of ", size, " ranks");
  auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<LocalCommunicator>(group, rank));
  }
  return ranks;
}

}  // namespace dhs
