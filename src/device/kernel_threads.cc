#include "kernel_threads.h"

#include <immintrin.h>

#include "dhisparse/base.h"

namespace dhs {
namespace {

// Waking a sleeping thread takes up to a few hundred microseconds on a virtual machine, many times
// a kernel. So a helper first spins, longer than the pause between two kernels of a layer, then
// offers its core to other threads at every look, longer than the pause between two steps, then
// sleeps.
constexpr int kSpins = 1000;
constexpr int kYields = 2000;

thread_local bool inside_a_piece = false;

}  // namespace

KernelThreads::KernelThreads(int num_threads) {
  DHS_CHECK(num_threads >= 1, "a team of ", num_threads, " threads");
  for (int i = 1; i < num_threads; ++i) helpers_.emplace_back([this] { help(); });
}

KernelThreads::~KernelThreads() {
  stopping_ = true;
  ++num_jobs_;
  num_jobs_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void KernelThreads::run(int64_t num_pieces, const std::function<void(int64_t)>& piece) {
  std::unique_lock only_caller(callers_, std::defer_lock);
  if (inside_a_piece || num_pieces < 2 || helpers_.empty() || !only_caller.try_lock()) {
    for (int64_t i = 0; i < num_pieces; ++i) piece(i);
    return;
  }
  num_pieces_ = num_pieces;
  piece_ = &piece;
  next_piece_.store(0, std::memory_order_relaxed);
  state_.store(((state_.load() >> 32) + 1) << 32 | kOpen);
  ++num_jobs_;
  if (num_sleeping_.load() > 0) num_jobs_.notify_all();
  work();
  uint64_t state = state_.fetch_and(~kOpen) & ~kOpen;
  for (int spins = 0; (state & kJoined) != 0; ++spins) {
    if (spins < kSpins) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
    state = state_.load();
  }
}

void KernelThreads::work() {
  inside_a_piece = true;
  while (true) {
    const int64_t i = next_piece_.fetch_add(1, std::memory_order_relaxed);
    if (i >= num_pieces_) break;
    (*piece_)(i);
  }
  inside_a_piece = false;
}

bool KernelThreads::join() {
  uint64_t state = state_.load();
  while ((state & kOpen) != 0) {
    if (state_.compare_exchange_weak(state, state + 1)) return true;
  }
  return false;
}

// False when the team is dissolved.
bool KernelThreads::wait_for_job(uint32_t seen) {
  for (int looks = 0; looks < kSpins + kYields; ++looks) {
    if (num_jobs_.load() != seen) return !stopping_;
    if (looks < kSpins) {
      _mm_pause();
    } else {
      std::this_thread::yield();
    }
  }
  ++num_sleeping_;
  num_jobs_.wait(seen);
  --num_sleeping_;
  return !stopping_;
}

void KernelThreads::help() {
  uint32_t seen = 0;
  while (wait_for_job(seen)) {
    seen = num_jobs_.load();
    if (!join()) continue;
    work();
    --state_;
  }
}

}  // namespace dhs
