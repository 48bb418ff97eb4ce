#include "pinned_memory.h"

#include <algorithm>
#include <atomic>

#include "cuda_error.h"
#include "host_memory.h"

namespace dhs {
namespace {

// From `address` to the next one that is divisible by piece_bytes.
int64_t bytes_to_border(const void* address, int64_t piece_bytes) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  return piece_bytes - static_cast<int64_t>(value % static_cast<uintptr_t>(piece_bytes));
}

// The pieces of one range, registered by several threads.
class PinnedPieces {
 public:
  PinnedPieces(std::byte* data, int64_t bytes, int ordinal, int64_t piece_bytes)
      : ordinal_(ordinal) {
    for (int64_t offset = 0; offset < bytes;) {
      const int64_t piece = std::min(bytes - offset, bytes_to_border(data + offset, piece_bytes));
      pieces_.push_back({data + offset, piece, false});
      offset += piece;
    }
  }

  cudaError_t add() {
    std::atomic<cudaError_t> failure = cudaSuccess;
    for_each_piece([&](Piece& piece) {
      if (failure != cudaSuccess) return;
      const cudaError_t error = cudaHostRegister(piece.data, static_cast<size_t>(piece.bytes),
                                                 cudaHostRegisterPortable | cudaHostRegisterMapped);
      piece.registered = error == cudaSuccess;
      if (!piece.registered) failure = error;
    });
    return failure;
  }

  void remove() {
    for_each_piece([](Piece& piece) {
      if (piece.registered) check_cuda(cudaHostUnregister(piece.data), "unregister host memory");
    });
  }

 private:
  struct Piece {
    std::byte* data;
    int64_t bytes;
    bool registered;
  };

  void for_each_piece(const std::function<void(Piece&)>& body) {
    parallel_for(static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end) {
      check_cuda(cudaSetDevice(ordinal_), "choose the device");
      for (int64_t i = begin; i < end; ++i) body(pieces_[static_cast<size_t>(i)]);
    });
  }

  const int ordinal_;
  std::vector<Piece> pieces_;
};

}  // namespace

absl::StatusOr<MemoryRange> reserve_pinned_memory(int64_t bytes, int ordinal, int64_t piece_bytes) {
  DHS_ASSIGN_OR_RETURN(MemoryRange memory, reserve_host_memory(bytes, "pinned host memory"));
  if (bytes == 0) return memory;
  auto pieces = std::make_shared<PinnedPieces>(memory.data(), bytes, ordinal, piece_bytes);
  if (const cudaError_t error = pieces->add(); error != cudaSuccess) {
    pieces->remove();
    cudaGetLastError();  // it has been heard
    return absl::ResourceExhaustedError(absl::StrCat(
        "pinned host memory of ", bytes, " bytes: the driver refuses to register it: ",
        cuda_error_text(error), "; lower host.pool, or raise the limit of locked memory"));
  }
  std::byte* data = memory.data();
  auto owner = std::make_shared<MemoryRange>(std::move(memory));
  return MemoryRange(data, bytes, [pieces, owner](std::byte*, int64_t) { pieces->remove(); });
}

void for_each_part(const void* to, const void* from, int64_t bytes, int64_t piece_bytes,
                   const std::function<void(int64_t offset, int64_t part_bytes)>& body) {
  for (int64_t offset = 0; offset < bytes;) {
    const int64_t part = std::min(
        {bytes - offset, bytes_to_border(static_cast<const std::byte*>(to) + offset, piece_bytes),
         bytes_to_border(static_cast<const std::byte*>(from) + offset, piece_bytes)});
    body(offset, part);
    offset += part;
  }
}

}  // namespace dhs
