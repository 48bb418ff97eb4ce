// BlockRunner's wgmma: a warp's lanes meet at every instruction, and products stay in a queue until
// they are waited for. Their operands are checked at both ends, as an asynchronous copy's are.
#include "simt/emu/block_runner.h"
#include "simt/emu/block_runner_internal.h"

namespace simt {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr uint32_t kVectorBytes = 16;

// What a lane brings to a product.
struct LaneProduct {
  WarpgroupProduct product;
  std::source_location where;
};

unsigned warp_index(const WarpLanes& lanes) {
  return lanes.thread(lanes.first()).linear_index / kWarpSize;
}

// Null when nothing is wrong.
const char* problem_of(const WarpLanes& lanes) {
  if (lanes.mask() != kAllLanes) return "wgmma by a warp that is not whole";
  const auto& first = lanes.data<LaneProduct>(lanes.first()).product;
  for (int lane : lanes) {
    const auto& other = lanes.data<LaneProduct>(lane).product;
    const bool agrees =
        other.a == first.a && other.b == first.b && other.accumulates == first.accumulates;
    if (!agrees) return "the lanes of a warp disagree on a wgmma";
  }
  return nullptr;
}

}  // namespace

void BlockRunner::warpgroup_product(const WarpgroupProduct& product, std::source_location where) {
  LaneProduct args{product, where};
  warp_collective(
      kAllLanes, &args, [](const WarpLanes& lanes) { active()->issue_product(lanes); }, where);
}

void BlockRunner::warpgroup_fence(std::source_location where) {
  warp_collective(
      kAllLanes, nullptr,
      [](const WarpLanes& lanes) { active()->products_.fence(warp_index(lanes)); }, where);
}

void BlockRunner::warpgroup_commit(std::source_location where) {
  warp_collective(
      kAllLanes, nullptr,
      [](const WarpLanes& lanes) { active()->products_.commit(warp_index(lanes)); }, where);
}

void BlockRunner::warpgroup_wait(std::source_location where) {
  warp_collective(
      kAllLanes, nullptr, [](const WarpLanes& lanes) { active()->compute_products(lanes); }, where);
}

void BlockRunner::async_proxy_fence() {
  const ThreadState& thread = current();
  const ChecksOff checks_off;
  ++proxy_fences_[thread.linear_index];
}

// The text of a fault is made before the stack that runs this is abandoned: nothing here may own
// memory by then.
void BlockRunner::issue_product(const WarpLanes& lanes) {
  const auto& first = lanes.data<LaneProduct>(lanes.first());
  auto& thread = static_cast<ThreadState&>(lanes.thread(lanes.first()));
  IssuedProduct issued{.product = first.product, .where = first.where};
  for (int lane : lanes) {
    issued.d[static_cast<size_t>(lane)] = lanes.data<LaneProduct>(lane).product.d;
  }
  const char* problem = problem_of(lanes);
  if (problem == nullptr) problem = products_.issue(warp_index(lanes), issued);
  if (problem != nullptr) {
    fail(*running_,
         [&] { return problem + (": " + describe(thread) + " at " + describe(first.where)); });
  }
  check_operands(thread, issued);
}

void BlockRunner::compute_products(const WarpLanes& lanes) {
  const unsigned warp = warp_index(lanes);
  auto& thread = static_cast<ThreadState&>(lanes.thread(lanes.first()));
  while (const IssuedProduct* product = products_.next_committed(warp)) {
    check_operands(thread, *product);
    compute(*product, warp, dynamic_shared_.data());
    products_.pop(warp);
  }
}

// To the access checks the warp's first lane reads, once: all lanes are at the same place.
void BlockRunner::check_operands(ThreadState& thread, const IssuedProduct& product) {
  list_operand_vectors(product.product, thread.linear_index / kWarpSize, operand_vectors_);
  const AddressRange shared = dynamic_shared_.range();
  for (const uint32_t vector : operand_vectors_) {
    const std::byte* address = dynamic_shared_.data() + vector;
    if (!shared.contains(reinterpret_cast<uintptr_t>(address), kVectorBytes)) {
      fail(*running_, [&] {
        return "wgmma operand outside of dynamic shared memory: " + describe(thread) + " at " +
               describe(product.where);
      });
    }
    if (!launch_->check_accesses) continue;
    const Access access{address, kVectorBytes, AccessKind::read, false, true};
    if (!is_allowed(thread, access, {nullptr, product.where})) park(*running_);
  }
}

}  // namespace simt
