// gather on CUDA: threads read host memory themselves; a copy engine would take one call per record
// (under 1 GB/s for records of 656 bytes), and the host does not know the orders.
//
// Grid: pick_copy_config, enough warps for all orders at once but at most 2 blocks per SM; 128
// threads; no shared memory. Bound by the host link: record_bytes - first_byte per order, in
// requests of 128 bytes, and by its latency when orders are few.
//
// The unit of work is a line: 128 bytes of host memory at a multiple of 128, read by 8 consecutive
// threads in one instruction, so that each line crosses the link once, wherever records start.
// Lines of all orders form one sequence, cut into tasks of 32 lines (several records each); a warp
// takes a task and goes through the stages
//   find   8 lines per thread and their orders
//   load   8 independent vectors of 16 bytes per thread, all in flight together
//   aim    8 slots, whose addresses are found while the link is busy
//   store
// Lanes beyond a record's first or last byte in its line stay idle. There is no branch before the
// last load: a stall there would be paid once per line instead of once per task.
//
// move_records is the same kernel from slot to slot, bound by device memory.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/memory.h"
#include "kernels/gather/addresses.cuh"
#include "kernels/gather/gather.h"
#include "kernels/gather/gather_config.h"

namespace dhs {
namespace {

constexpr int kLanesPerLine = kCopyLineBytes / kCopyVectorBytes;
constexpr int kLinesPerLoad = 32 / kLanesPerLine;  // that one instruction of a warp reads
constexpr int kLoadsInFlight = kCopyLinesPerWarp / kLinesPerLoad;
constexpr int kWarps = kCopyThreads / 32;

// What a kernel copies: the bytes of every order from source(order) to target(order).
class HostToSlot {
 public:
  using Order = FetchOrder;
  explicit HostToSlot(const GatherParams& params)
      : orders_(params.orders),
        num_orders_(params.num_orders),
        first_byte_(params.first_byte),
        host_(params.host),
        slots_(params.slots) {}

  __device__ int64_t num_orders() const { return *num_orders_; }
  __device__ Order order(int64_t i) const { return orders_(i); }
  __device__ const std::byte* source(const Order& order) const {
    return host_.at(order.host_row) + first_byte_;
  }
  __device__ std::byte* target(const Order& order) const {
    return slots_.at(order.slot) + first_byte_;
  }

 private:
  TensorView<const FetchOrder, 1> orders_;
  const int32_t* num_orders_;
  int64_t first_byte_;
  cuda::HostRecordAddresses host_;
  cuda::ItemAddresses slots_;
};

class SlotToSlot {
 public:
  using Order = MoveOrder;
  explicit SlotToSlot(const MoveRecordsParams& params)
      : orders_(params.orders), num_orders_(params.num_orders), slots_(params.slots) {}

  __device__ int64_t num_orders() const { return *num_orders_; }
  __device__ Order order(int64_t i) const { return orders_(i); }
  __device__ const std::byte* source(const Order& order) const {
    return slots_.at(order.from_slot);
  }
  __device__ std::byte* target(const Order& order) const { return slots_.at(order.to_slot); }

 private:
  TensorView<const MoveOrder, 1> orders_;
  const int32_t* num_orders_;
  cuda::ItemAddresses slots_;
};

// Offset, within a range of `bytes` at `source`, of the vector of its line `line` that this lane
// copies; -1 for none. Lines are counted from the one in which the range starts.
__device__ __forceinline__ int32_t vector_offset(const std::byte* source, int32_t bytes,
                                                 int64_t line, int lane) {
  const auto phase = static_cast<int32_t>(reinterpret_cast<uintptr_t>(source) % kCopyLineBytes);
  const auto offset = static_cast<int32_t>(line * kCopyLineBytes + lane * kCopyVectorBytes) - phase;
  return offset < bytes ? (offset < 0 ? -1 : offset) : -1;
}

template <class Copies>
__global__ void __launch_bounds__(kCopyThreads, 4)
    copy_records_kernel(Copies copies, int32_t bytes, cuda::Divisor lines_per_order) {
  const int64_t num_orders = copies.num_orders();
  const int64_t num_warps = int64_t{gridDim.x} * kWarps;
  const int lane = static_cast<int>(threadIdx.x % kLanesPerLine);
  const int line_of_load = static_cast<int>(threadIdx.x % 32) / kLanesPerLine;
  // Consecutive tasks go to different blocks: few orders still use many SMs.
  int64_t task = int64_t{threadIdx.x / 32} * gridDim.x + blockIdx.x;
  while (lines_per_order.quotient(task * kCopyLinesPerWarp) < num_orders) {
    const int64_t first = task * kCopyLinesPerWarp + line_of_load;
    typename Copies::Order orders[kLoadsInFlight];
    for (int k = 0; k < kLoadsInFlight; ++k) {  // find
      const int64_t i = lines_per_order.quotient(first + k * kLinesPerLoad);
      orders[k] = copies.order(i < num_orders ? i : num_orders - 1);
    }
    int32_t offsets[kLoadsInFlight];
    uint4 values[kLoadsInFlight];
    for (int k = 0; k < kLoadsInFlight; ++k) {  // load
      const int64_t flat = first + k * kLinesPerLoad;
      const std::byte* source = copies.source(orders[k]);
      offsets[k] = vector_offset(source, bytes, lines_per_order.remainder(flat), lane);
      if (lines_per_order.quotient(flat) >= num_orders) offsets[k] = -1;
      if (offsets[k] >= 0) values[k] = simt::load_streaming_16(source + offsets[k]);
    }
    std::byte* targets[kLoadsInFlight];
    for (int k = 0; k < kLoadsInFlight; ++k) {  // aim
      targets[k] = copies.target(orders[k]) + offsets[k];
    }
    for (int k = 0; k < kLoadsInFlight; ++k) {  // store
      if (offsets[k] >= 0) simt::store_streaming_16(targets[k], values[k]);
    }
    task += num_warps;
  }
}

template <class Copies>
void launch_copies(const char* op, const Copies& copies, const CopyDesc& desc, Stream stream) {
  const CopyConfig config = pick_copy_config(desc);
  if (config.num_blocks == 0) return;
  cuda::launch(
      op, copy_records_kernel<Copies>,
      {.grid = dim3(static_cast<unsigned>(config.num_blocks)), .block = dim3(kCopyThreads)}, stream,
      copies, static_cast<int32_t>(desc.bytes), cuda::Divisor(config.lines_per_order));
}

}  // namespace

void launch_gather_cuda(const GatherParams& params, Stream stream) {
  const HostRecords& host = params.host;
  const auto base = static_cast<int64_t>(reinterpret_cast<uintptr_t>(host.base) % kCopyLineBytes);
  launch_copies("gather", HostToSlot(params),
                {.max_num_orders = params.orders.sizes[0],
                 .bytes = host.record_bytes - params.first_byte,
                 .max_line_phase = max_line_phase(base + host.group_offset + params.first_byte,
                                                  host.block_bytes, host.record_bytes),
                 .num_sms = stream.num_sms},
                stream);
}

void launch_move_records_cuda(const MoveRecordsParams& params, Stream stream) {
  launch_copies("move_records", SlotToSlot(params),
                {.max_num_orders = params.orders.sizes[0],
                 .bytes = params.slots.item_bytes,
                 .max_line_phase = kCopyLineBytes - kCopyVectorBytes,  // chunks lie anywhere
                 .num_sms = stream.num_sms},
                stream);
}

}  // namespace dhs
