// Runs programs with one fault each and shows which build of the emulator finds it, and how.
//
// Prints one line per fault, `fault | build | how it shows`, and fails when a fault is found in
// another way than the list says, or found although the list says it is not.
//
// Usage: simt_<variant>_planted_faults             all of them, each in a process of its own
//        simt_<variant>_planted_faults --run N     only this one, in this process
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "simt/kernels/bulk_copies.cuh"
#include "simt/kernels/faulty.cuh"
#include "simt/kernels/queued.cuh"
#include "simt/kernels/warpgroups.cuh"
#include "simt/launch_fixture.h"

#if defined(__SANITIZE_ADDRESS__)
#define DHS_SIMT_VARIANT 2
#else
#define DHS_SIMT_VARIANT (simt::accesses_are_checked() ? 1 : 0)
#endif

namespace simt {
namespace {

constexpr int kThreads = 64;
constexpr size_t kBytes = kThreads * sizeof(int);
constexpr const char* kWrongResult = "wrong result";
constexpr std::array<const char*, 3> kVariants = {"plain", "checked", "asan"};

// What the run showed: the first report, a wrong result, or nothing.
std::string outcome(bool result_is_right = true) {
  std::vector<std::string> errors = take_errors();
  errors.insert(errors.end(), last_report().errors.begin(), last_report().errors.end());
  if (!errors.empty()) return errors.front();
  return result_is_right ? "" : kWrongResult;
}

std::vector<int> counted(int count = kThreads) {
  std::vector<int> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1);
  return values;
}

template <class T>
std::vector<T> zeros(size_t count) {
  return std::vector<T>(count);
}

std::vector<int> reversed(std::vector<int> values) {
  std::reverse(values.begin(), values.end());
  return values;
}

// -------------------------------------------------------------------------- faults within a kernel

std::string missing_syncthreads() {
  options().uninitialized_shared = false;  // which it is, too
  std::vector<float> values(kThreads);
  std::iota(values.begin(), values.end(), 1.0f);
  const DeviceBuffer<float> x(values);
  launch(faulty::missing_syncthreads, 1, kThreads, 0, nullptr, x.data());
  std::reverse(values.begin(), values.end());
  return outcome(x.download() == values);
}

std::string missing_syncwarp() {
  options().uninitialized_shared = false;
  const DeviceBuffer<int> x(counted(32));
  const DeviceBuffer<int> y(32);
  launch(faulty::missing_syncwarp, 1, 32, 0, nullptr, x.data(), y.data());
  return outcome(y.download() == reversed(counted(32)));
}

// Kernels that should copy one 16-byte vector a thread from x to y.
std::string copies_vectors(void (*kernel)(const uint4*, uint4*), bool reverses) {
  std::vector<uint4> values;
  for (unsigned i = 1; i <= kThreads; ++i) values.push_back(make_uint4(i, i, i, i));
  const DeviceBuffer<uint4> x(values);
  const DeviceBuffer<uint4> y(values.size());
  launch(kernel, 1, kThreads, values.size() * sizeof(uint4), nullptr, x.data(), y.data());
  const auto actual = y.download();
  bool right = true;
  for (size_t i = 0; i < values.size(); ++i) {
    right &= actual[i].x == values[reverses ? values.size() - 1 - i : i].x;
  }
  return outcome(right);
}

std::string missing_cp_async_wait() { return copies_vectors(faulty::missing_async_wait, false); }

std::string missing_barrier_after_cp_async() {
  return copies_vectors(faulty::missing_barrier_after_async_wait, true);
}

std::string missing_mbarrier_wait() { return copies_vectors(bulk::missing_wait, false); }

std::string bulk_copy_over_data_in_use() {
  const DeviceBuffer<uint4> x(zeros<uint4>(2 * kThreads));
  const DeviceBuffer<uint4> y(2 * kThreads);
  launch(bulk::missing_empty_wait, 1, kThreads, kThreads * sizeof(uint4), nullptr, x.data(),
         y.data());
  return outcome();
}

// a [64, 64] * b [64, 64]: the lines of b hold k.
bool is_product(const std::vector<float>& c, const std::vector<__nv_bfloat16>& a,
                const std::vector<__nv_bfloat16>& b) {
  for (size_t i = 0; i < c.size(); ++i) {
    float sum = 0;
    for (size_t k = 0; k < 64; ++k) {
      sum += __bfloat162float(a[i / 64 * 64 + k]) * __bfloat162float(b[i % 64 * 64 + k]);
    }
    if (c[i] != sum) return false;
  }
  return true;
}

std::string warpgroup_product(warpgroups::Fault fault) {
  std::vector<__nv_bfloat16> a, b;
  for (int i = 0; i < 64 * 64; ++i) {
    a.push_back(__float2bfloat16(float(i % 7)));
    b.push_back(__float2bfloat16(float(i % 5)));
  }
  const DeviceBuffer<__nv_bfloat16> gmem_a(a), gmem_b(b);
  const DeviceBuffer<float> c(a.size());
  launch(warpgroups::product, 1, 128, 16 << 10, nullptr, gmem_a.data(), gmem_b.data(), c.data(),
         fault);
  return outcome(is_product(c.download(), a, b));
}

std::string wgmma_wait_too_late() { return warpgroup_product(warpgroups::Fault::late_wait); }

std::string missing_wgmma_fence() { return warpgroup_product(warpgroups::Fault::missing_fence); }

std::string missing_proxy_fence() {
  return warpgroup_product(warpgroups::Fault::missing_proxy_fence);
}

std::string missing_swizzle() { return warpgroup_product(warpgroups::Fault::unswizzled); }

std::string wgmma_operand_in_use() { return warpgroup_product(warpgroups::Fault::operand_in_use); }

std::string global_off_by_one() {
  const DeviceBuffer<float> x(zeros<float>(kThreads));
  const DeviceBuffer<float> y(kThreads);
  launch(faulty::read_past_end, 1, kThreads, 0, nullptr, x.data(), y.data());
  return outcome();
}

// `kernel` on 64 floats of its own, with as many floats of dynamic shared memory.
std::string on_floats(void (*kernel)(float*), unsigned num_blocks = 1) {
  const DeviceBuffer<float> x(zeros<float>(kThreads));
  launch(kernel, num_blocks, kThreads, kThreads * sizeof(float), nullptr, x.data());
  return outcome();
}

std::string on_ints(void (*kernel)(int*), unsigned num_threads = 32) {
  const DeviceBuffer<int> x(zeros<int>(kThreads));
  launch(kernel, 1, num_threads, 0, nullptr, x.data());
  return outcome();
}

std::string dynamic_shared_off_by_one() { return on_floats(faulty::dynamic_shared_overrun); }

std::string static_shared_off_by_one() {
  options().uninitialized_shared = false;
  return on_floats(faulty::static_shared_overrun);
}

std::string uninitialized_shared() { return on_floats(faulty::read_unwritten_shared); }

std::string divergent_barrier() { return on_floats(faulty::divergent_barrier); }

std::string exited_thread_at_barrier() { return on_floats(faulty::exit_before_barrier); }

std::string lane_outside_mask() { return on_ints(faulty::call_outside_mask); }

std::string exited_lane_in_mask() { return on_ints(faulty::exited_lane_in_mask); }

std::string plain_write_beside_atomic() { return on_ints(faulty::plain_write_beside_atomic); }

std::string two_blocks_one_output() {
  options().global_races = true;
  return on_floats(faulty::blocks_share_output, 2);
}

std::string misaligned_vector() {
  const DeviceBuffer<float> x(zeros<float>(4 * kThreads));
  const DeviceBuffer<float> y(zeros<float>(4 * kThreads));
  launch(faulty::misaligned_vector, 1, kThreads, 0, nullptr, x.data(), y.data());
  return outcome();
}

std::string livelock() {
  options().max_yields = 10'000;
  return on_ints(faulty::spin_forever);
}

std::string signed_overflow() {
  const DeviceBuffer<int> x(std::vector<int>(kThreads, 1));
  launch(faulty::signed_overflow, 1, kThreads, 0, nullptr, x.data());
  return outcome();
}

// ------------------------------------------------------------------------------ faults of the host

// y should be the reverse of what `fill` writes to x first. Tried with several seeds.
std::string missing_event() {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    options().stream_seed = seed;
    const DeviceBuffer<int> x(counted());
    const DeviceBuffer<int> y(kThreads);
    const TestStream a;
    const TestStream b;
    launch(queued::fill, 1, kThreads, 0, a, x.data(), 7);
    launch(queued::reverse, 1, kThreads, 0, b, x.data(), y.data());
    cudaDeviceSynchronize();
    const std::string found = outcome(y.download() == std::vector<int>(kThreads, 7));
    if (!found.empty()) return found;
  }
  return "";
}

std::string missing_event_between_copies() {
  const DeviceBuffer<int> x(counted());
  const DeviceBuffer<int> y(kThreads);
  const TestStream a;
  const TestStream b;
  cudaMemsetAsync(x.data(), 0, kBytes, a);
  cudaMemcpyAsync(y.data(), x.data(), kBytes, cudaMemcpyDeviceToDevice, b);
  cudaDeviceSynchronize();
  return outcome();
}

std::string host_read_too_early() {
  const DeviceBuffer<int> x(counted());
  const TestStream stream;
  launch(queued::fill, 1, kThreads, 0, stream, x.data(), 7);
  const bool right = x.download() == std::vector<int>(kThreads, 7);
  cudaStreamSynchronize(stream);
  return outcome(right);
}

std::string pinned_source_reused_too_early() {
  const DeviceBuffer<int> x(kThreads);
  const TestStream stream;
  void* pinned = nullptr;
  cudaHostAlloc(&pinned, kBytes, cudaHostAllocDefault);
  std::memset(pinned, 0, kBytes);
  cudaMemcpyAsync(x.data(), pinned, kBytes, cudaMemcpyHostToDevice, stream);
  std::memset(pinned, 1, kBytes);
  cudaStreamSynchronize(stream);
  cudaFreeHost(pinned);
  return outcome(x.download() == std::vector<int>(kThreads, 0));
}

std::string use_after_free() {
  const DeviceBuffer<int> y(kThreads);
  const TestStream stream;
  int* x = nullptr;
  {
    const DeviceBuffer<int> freed(counted());
    x = freed.data();
  }
  launch(queued::reverse, 1, kThreads, 0, stream, static_cast<const int*>(x), y.data());
  cudaStreamSynchronize(stream);
  return outcome(y.download() == reversed(counted()));
}

std::string copy_past_an_allocation() {
  const DeviceBuffer<int> x(kThreads);
  const std::vector<int> values = counted(kThreads + 1);
  cudaMemcpy(x.data(), values.data(), kBytes + sizeof(int), cudaMemcpyHostToDevice);
  return outcome();
}

std::string fork_without_join() {
  const DeviceBuffer<int> x(kThreads);
  const TestStream stream;
  const TestStream other;
  const TestEvent forked;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaEventRecord(forked, stream);
  cudaStreamWaitEvent(other, forked, 0);
  cudaMemsetAsync(x.data(), 0, kBytes, other);
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

std::string memory_never_freed() {
  options().leaks_fail = true;
  void* data = nullptr;
  cudaMalloc(&data, 100);
  return outcome();
}

std::string error_nobody_looks_at() {
  cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(100));
  return "";
}

// -------------------------------------------------------------------------------------- the list

// What each build shows: part of the first report, of what a sanitizer prints, or kWrongResult.
// Empty: the fault is not seen.
struct PlantedFault {
  const char* name;
  std::function<std::string()> run;
  std::array<const char*, 3> shows;
};

std::vector<PlantedFault> faults_within_a_kernel() {
  return {
      {"missing __syncthreads", missing_syncthreads, {kWrongResult, "shared race", kWrongResult}},
      {"missing __syncwarp", missing_syncwarp, {kWrongResult, "shared race", kWrongResult}},
      {"missing cp.async wait", missing_cp_async_wait, {kWrongResult, kWrongResult, kWrongResult}},
      {"missing barrier after a cp.async wait",
       missing_barrier_after_cp_async,
       {kWrongResult, "uninitialized shared read", kWrongResult}},
      {"missing mbarrier wait", missing_mbarrier_wait, {kWrongResult, kWrongResult, kWrongResult}},
      {"bulk copy over data in use", bulk_copy_over_data_in_use, {"", "shared race", ""}},
      {"wgmma wait after the result is read",
       wgmma_wait_too_late,
       {kWrongResult, kWrongResult, kWrongResult}},
      {"missing wgmma.fence",
       missing_wgmma_fence,
       {"wgmma without wgmma.fence", "wgmma without wgmma.fence", "wgmma without wgmma.fence"}},
      {"missing proxy fence before a wgmma",
       missing_proxy_fence,
       {"", "missing fence.proxy.async", ""}},
      {"wgmma operand without its swizzle",
       missing_swizzle,
       {kWrongResult, kWrongResult, kWrongResult}},
      {"wgmma operand overwritten while others read it",
       wgmma_operand_in_use,
       {kWrongResult, "shared race", kWrongResult}},
      {"off by one, global",
       global_off_by_one,
       {"", "global out-of-bounds read", "heap-buffer-overflow"}},
      {"off by one, dynamic shared",
       dynamic_shared_off_by_one,
       {"", "shared out-of-bounds read", "use-after-poison"}},
      {"off by one, static shared", static_shared_off_by_one, {"", "", "out of bounds"}},
      {"read of shared memory that nobody wrote",
       uninitialized_shared,
       {"", "uninitialized shared read", ""}},
      {"calling lane not in mask",
       lane_outside_mask,
       {"calling lane not in mask", "calling lane not in mask", "calling lane not in mask"}},
      {"exited lane in mask",
       exited_lane_in_mask,
       {"mask names an exited lane", "mask names an exited lane", "mask names an exited lane"}},
      {"divergent barrier",
       divergent_barrier,
       {"divergent barrier", "divergent barrier", "divergent barrier"}},
      {"exited thread at a barrier", exited_thread_at_barrier, {"stuck", "stuck", "stuck"}},
      {"livelock", livelock, {"livelock", "livelock", "livelock"}},
      {"plain write beside an atomic", plain_write_beside_atomic, {"", "shared race", ""}},
      {"two blocks write one output", two_blocks_one_output, {"", "global race", ""}},
      {"misaligned vector",
       misaligned_vector,
       {"Segmentation fault", "misaligned read", "misaligned address"}},
      {"signed overflow", signed_overflow, {"", "", "signed integer overflow"}},
  };
}

std::vector<PlantedFault> faults_of_the_host() {
  return {
      {"missing event between kernels", missing_event, {kWrongResult, "stream race", kWrongResult}},
      {"missing event between copies",
       missing_event_between_copies,
       {"stream race", "stream race", "stream race"}},
      {"host read before synchronisation",
       host_read_too_early,
       {kWrongResult, kWrongResult, kWrongResult}},
      {"pinned source written before the copy ran",
       pinned_source_reused_too_early,
       {kWrongResult, kWrongResult, kWrongResult}},
      {"use after free", use_after_free, {kWrongResult, "which is freed", "use-after-poison"}},
      {"copy past an allocation",
       copy_past_an_allocation,
       {"writes 260 bytes", "writes 260 bytes", "writes 260 bytes"}},
      {"fork without join in a capture",
       fork_without_join,
       {"unjoined work", "unjoined work", "unjoined work"}},
      {"memory that is never freed",
       memory_never_freed,
       {"memory leak", "memory leak", "memory leak"}},
      {"error that nobody looks at",
       error_nobody_looks_at,
       {"exit status 66", "exit status 66", "exit status 66"}},
  };
}

const std::vector<PlantedFault>& planted_faults() {
  static const std::vector<PlantedFault> faults = [] {
    std::vector<PlantedFault> all = faults_within_a_kernel();
    std::ranges::move(faults_of_the_host(), std::back_inserter(all));
    return all;
  }();
  return faults;
}

// ---------------------------------------------------------------------------------------- running

// All that a process with this fault prints.
std::string printed_by(size_t fault) {
  char program[512] = "";
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return "";
  const std::string command =
      "'" + std::string(program) + "' --run " + std::to_string(fault) + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char piece[1024];
  while (std::fgets(piece, sizeof piece, pipe) != nullptr) text += piece;
  const int status = pclose(pipe);
  return text + "exit status " + std::to_string(WEXITSTATUS(status)) + "\n";
}

// The line that tells, shortened to a table's width.
std::string telling_line(const std::string& text, const std::string& wanted) {
  const size_t at = text.find(wanted);
  if (at == std::string::npos) return "";
  const size_t begin = text.rfind('\n', at) + 1;
  std::string line = text.substr(begin, text.find('\n', at) - begin);
  const size_t marker = line.find("OUTCOME: ");
  if (marker != std::string::npos) line = line.substr(marker + 9);
  return line.substr(0, 110);
}

bool show(size_t index) {
  const PlantedFault& fault = planted_faults()[index];
  const char* variant = kVariants[DHS_SIMT_VARIANT];
  const std::string wanted = fault.shows[DHS_SIMT_VARIANT];
  const std::string text = printed_by(index);
  const std::string found =
      wanted.empty() ? telling_line(text, "OUTCOME: nothing") : telling_line(text, wanted);
  if (found.empty()) {
    std::printf("%s | %s | NOT AS LISTED (%s):\n%s\n", fault.name, variant, wanted.c_str(),
                text.c_str());
    return false;
  }
  std::printf("%s | %s | %s\n", fault.name, variant, wanted.empty() ? "-" : found.c_str());
  return true;
}

}  // namespace
}  // namespace simt

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--run") == 0) {
    simt::options().workers = 1;
    const auto& fault = simt::planted_faults().at(std::strtoul(argv[2], nullptr, 10));
    const std::string found = fault.run();
    std::printf("OUTCOME: %s\n", found.empty() ? "nothing" : found.c_str());
    return 0;
  }
  bool as_listed = true;
  std::printf("fault | build | how it shows\n");
  for (size_t i = 0; i < simt::planted_faults().size(); ++i) as_listed &= simt::show(i);
  return as_listed ? 0 : 1;
}
