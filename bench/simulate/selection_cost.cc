// What one synthetic selection costs, one index group of one request, by context length.
#include <chrono>
#include <cstdio>
#include <vector>

#include "dhisparse/trace.h"

namespace dhs {
namespace {

constexpr int kNumSteps = 100;

double microseconds_per_selection(const SelectionProfile& profile, int32_t num_tokens) {
  const SelectionModel model(profile);
  SelectionGenerator generator(model, 1, num_tokens);
  std::vector<int32_t> selection(static_cast<size_t>(profile.num_groups) * profile.top_k);
  const auto next = [&] {
    generator.next(view(selection.data(), profile.num_groups, profile.top_k));
  };
  next();
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < kNumSteps; ++step) next();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / kNumSteps / profile.num_groups;
}

}  // namespace
}  // namespace dhs

int main() {
  std::printf("%8s %8s %16s\n", "top_k", "tokens", "us per selection");
  for (const int32_t top_k : {512, 2048}) {
    for (const int32_t num_tokens : {8192, 32768, 131072, 524288}) {
      dhs::SelectionProfile profile;
      profile.num_groups = 4;
      profile.top_k = top_k;
      std::printf("%8d %8d %16.1f\n", top_k, num_tokens,
                  dhs::microseconds_per_selection(profile, num_tokens));
    }
  }
  return 0;
}
