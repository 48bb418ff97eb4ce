// What the row cache's policy and its sizes are worth: one table over selections with the locality
// of real ones, or over a recorded trace.
//   trace_suite FOLDER [TRACE_FILE]      writes FOLDER/trace_suite.csv and .json
//   trace_suite --record TRACE_FILE      writes the first load as a trace
//
// Tables, each at 1, 2 and 4 times top_k rows for a request that runs:
//   policies  the clock of kernels/resolve, its real passes, beside exact LRU, FIFO, random
//             replacement and Belady's choice, which no policy can beat
//   sharing   many requests: one clock for all of their rows; an LRU cache of equal size for each;
//             LRU caches sized by water-filling over the requests' exact curves of the very steps
//             that are measured: an oracle
//   groups    clocks of one size for every index group; of sizes by one weight for each, as the
//             residency controller has them; of sizes by exact LRU curves of the same earlier steps
// The first steps warm the caches; `policies` leaves out the last too, so that Belady sees on.
// Rows of requests that ended stay until they are the oldest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "dhisparse/base.h"
#include "kv/residency_controller.h"
#include "row_cache_run.h"
#include "suite_rows.h"

namespace dhs::bench {
namespace {

constexpr int kMultiples[] = {1, 2, 4};
constexpr int kGranulesPerTopK = 16;  // row caches are sized in such steps

// ---- Loads --------------------------------------------------------------------------------------

SelectionProfile profile_of(Locality locality, int32_t num_groups) {
  SelectionProfile profile;
  profile.num_groups = num_groups;
  profile.top_k = 256;
  profile.num_recent = profile.top_k / 16;
  profile.num_sinks = profile.top_k / 128;
  profile.locality = locality;
  return profile;
}

LoadShape shape_of(std::string name, std::vector<SelectionProfile> profiles, int num_steps) {
  LoadShape shape = {
      .name = std::move(name), .profiles = std::move(profiles), .num_steps = num_steps, .seed = 1};
  shape.context = 49 * shape.profiles.front().top_k;  // 100K tokens to a top_k of 2048
  return shape;
}

LoadShape one_request(const std::string& regime, Locality locality) {
  return shape_of(regime, {profile_of(locality, 21)}, 1600);
}

// From a quarter to 1.6 times the regime's misses, in equal ratios.
LoadShape many_requests(const std::string& regime, Locality locality) {
  constexpr int kNumRequests = 16;
  constexpr double kLeast = 0.25, kMost = 1.6;
  std::vector<SelectionProfile> profiles;
  for (int i = 0; i < kNumRequests; ++i) {
    const double factor = kLeast * std::pow(kMost / kLeast, i / (kNumRequests - 1.0));
    profiles.push_back(
        profile_of({locality.at_k * factor, locality.at_2k * factor, locality.at_4k * factor}, 2));
  }
  return shape_of(regime + "-16", std::move(profiles), 1000);
}

// ---- Misses -------------------------------------------------------------------------------------

int64_t total(const std::vector<int64_t>& per_pass, Window window) {
  int64_t sum = 0;
  for (int64_t step = window.first; step < window.last; ++step) sum += per_pass[step];
  return sum;
}

int64_t needed_rows(const std::vector<trace::Pass>& passes, Window window) {
  int64_t sum = 0;
  for (int64_t step = window.first; step < window.last; ++step)
    sum += std::ssize(passes[step].rows);
  return sum;
}

// ---- The suite ----------------------------------------------------------------------------------

class Suite {
 public:
  Suite(const Load& load, SuiteRows& rows)
      : load_(load), rows_(rows), granule_(std::max(1, load.top_k / kGranulesPerTopK)) {
    for (int group = 0; group < num_groups(); ++group) passes_.push_back(passes_of(load, group));
    base_rows_ = most_requests() * load.top_k;
    for (const auto& passes : passes_) {
      for (const trace::Pass& pass : passes) {
        base_rows_ = std::max<int64_t>(base_rows_, std::ssize(pass.rows));
      }
    }
    rows_.begin_load(load);
  }

  void compare_policies() {
    const Window window = {load_.num_steps() / 4, load_.num_steps() - load_.num_steps() / 8};
    for (int multiple : kMultiples) {
      const int64_t capacity = multiple * base_rows_;
      int64_t clock = 0, lru = 0, fifo = 0, random = 0, belady = 0, needed = 0;
      for (int group = 0; group < num_groups(); ++group) {
        const std::vector<trace::Pass>& passes = passes_[group];
        needed += needed_rows(passes, window);
        clock += row_cache_misses(load_, group, capacity, window);
        lru += total(trace::lru_misses(passes, std::span(&capacity, 1))[0], window);
        fifo += total(trace::fifo_misses(passes, capacity), window);
        random += total(trace::random_misses(passes, capacity, 1), window);
        belady += total(trace::belady_misses(passes, capacity), window);
      }
      add_row("policies", "clock", {multiple, capacity, clock, needed});
      add_row("policies", "lru", {multiple, capacity, lru, needed});
      add_row("policies", "fifo", {multiple, capacity, fifo, needed});
      add_row("policies", "random", {multiple, capacity, random, needed});
      add_row("policies", "belady", {multiple, capacity, belady, needed});
    }
  }

  // Only where all requests run in every step: else nobody's equal share is clear.
  void compare_sharing() {
    if (load_.num_requests < 2 || least_requests() < load_.num_requests) return;
    const Window window = {load_.num_steps() / 4, load_.num_steps()};
    std::vector<std::vector<LruCurve>> curves;  // [group][request]
    int64_t needed = 0;
    for (int group = 0; group < num_groups(); ++group) {
      curves.push_back(request_curves(group, window));
      needed += needed_rows(passes_[group], window);
    }
    for (int multiple : kMultiples) {
      const int64_t rows = multiple * base_rows_;
      const int64_t granules = rows / granule_;
      const int64_t least = ceil_div(load_.top_k, granule_);
      int64_t shared = 0, equal = 0, filled = 0;
      for (int group = 0; group < num_groups(); ++group) {
        shared += row_cache_misses(load_, group, rows, window);
        const std::vector<int64_t> sizes = water_filled(curves[group], least, granules);
        for (size_t i = 0; i < sizes.size(); ++i) {
          equal += curves[group][i].missed(granules / std::ssize(sizes));
          filled += curves[group][i].missed(sizes[i]);
        }
      }
      add_row("sharing", "shared clock", {multiple, rows, shared, needed});
      add_row("sharing", "equal lru", {multiple, rows, equal, needed});
      add_row("sharing", "water-filled lru", {multiple, rows, filled, needed});
    }
  }

  void compare_group_sizes() {
    if (num_groups() < 2) return;
    const int64_t half = load_.num_steps() / 2;
    const Window learned = {load_.num_steps() / 4, half};
    const Window measured = {half + half / 4, load_.num_steps()};
    std::vector<LruCurve> curves;
    int64_t needed = 0;
    for (const auto& passes : passes_) {
      curves.emplace_back(passes, learned, granule_);
      needed += needed_rows(passes, measured);
    }
    for (int multiple : kMultiples) {
      const int64_t least = ceil_div(base_rows_, granule_);
      const int64_t each = multiple * least;
      const auto add_sizes = [&](const char* policy, const std::vector<int64_t>& sizes) {
        add_row("groups", policy,
                {multiple, each * granule_, misses_of_sizes(sizes, measured), needed});
      };
      add_sizes("equal clock", std::vector<int64_t>(num_groups(), each));
      add_sizes("clock by weight", by_weight(weights(each, learned), least, each * num_groups()));
      add_sizes("clock by lru curves", water_filled(curves, least, each * num_groups()));
    }
  }

 private:
  struct Count {
    int multiple;
    int64_t rows;
    int64_t missed;
    int64_t needed;
  };
  void add_row(const char* table, const char* policy, const Count& count) {
    rows_.add({.load = load_.name,
               .table = table,
               .policy = policy,
               .multiple = count.multiple,
               .rows = count.rows,
               .missed = count.missed,
               .needed = count.needed});
  }

  int num_groups() const { return static_cast<int>(load_.groups.size()); }
  static int64_t num_requests_of(const LoadStep& rows) {
    std::set<int32_t> requests;
    for (const QueryRow& row : rows) requests.insert(row.request);
    return std::ssize(requests);
  }
  int64_t most_requests() const {
    int64_t most = 0;
    for (const auto& steps : load_.groups) {
      for (const LoadStep& rows : steps) most = std::max(most, num_requests_of(rows));
    }
    return most;
  }
  int64_t least_requests() const {
    int64_t least = load_.num_requests;
    for (const auto& steps : load_.groups) {
      for (const LoadStep& rows : steps) least = std::min(least, num_requests_of(rows));
    }
    return least;
  }

  std::vector<LruCurve> request_curves(int group, Window window) const {
    std::vector<LruCurve> curves;
    for (int32_t request = 0; request < load_.num_requests; ++request) {
      curves.emplace_back(passes_of(load_.of_request(request), group), window, granule_);
    }
    return curves;
  }

  // As the residency controller has them (kv/residency_controller.h), after one look at caches of
  // equal size.
  std::vector<double> weights(int64_t granules_each, Window learned) const {
    std::vector<double> weights;
    for (int group = 0; group < num_groups(); ++group) {
      const int64_t rows = granules_each * granule_;
      const auto missed = static_cast<double>(row_cache_misses(load_, group, rows, learned));
      weights.push_back(std::pow(std::max(1.0, missed), 1 / (1 + kMissPower)));
    }
    return weights;
  }

  // Granule by granule to whoever has the fewest by its weight.
  static std::vector<int64_t> by_weight(const std::vector<double>& weights, int64_t least,
                                        int64_t num_granules) {
    std::vector<int64_t> sizes(weights.size(), least);
    const auto fill = [&](size_t i) { return static_cast<double>(sizes[i]) / weights[i]; };
    for (int64_t left = num_granules - least * std::ssize(sizes); left > 0; --left) {
      size_t emptiest = 0;
      for (size_t i = 1; i < sizes.size(); ++i) emptiest = fill(i) < fill(emptiest) ? i : emptiest;
      ++sizes[emptiest];
    }
    return sizes;
  }

  int64_t misses_of_sizes(const std::vector<int64_t>& sizes, Window window) const {
    int64_t missed = 0;
    for (int group = 0; group < num_groups(); ++group) {
      missed += row_cache_misses(load_, group, sizes[group] * granule_, window);
    }
    return missed;
  }

  const Load& load_;
  SuiteRows& rows_;
  const int64_t granule_;                         // rows: sizes are multiples of it
  std::vector<std::vector<trace::Pass>> passes_;  // [group]
  int64_t base_rows_ = 0;  // top_k for each request that runs, and enough for any pass
};

void run_suite(const Load& load, SuiteRows& rows) {
  Suite suite(load, rows);
  suite.compare_policies();
  suite.compare_sharing();
  suite.compare_group_sizes();
}

absl::Status run(const std::string& folder, const char* trace_file) {
  SuiteRows rows;
  if (trace_file != nullptr) {
    DHS_ASSIGN_OR_RETURN(const Load load, read_load(trace_file));
    run_suite(load, rows);
    return rows.write(folder);
  }
  for (const auto& [regime, locality] :
       {std::pair("close", kCloseLocality), std::pair("wide", kWideLocality)}) {
    run_suite(draw_load(one_request(regime, locality)), rows);
    const Load many = draw_load(many_requests(regime, locality));
    Suite(many, rows).compare_sharing();
  }
  return rows.write(folder);
}

}  // namespace
}  // namespace dhs::bench

int main(int argc, char** argv) {
  absl::Status status;
  if (argc == 3 && std::strcmp(argv[1], "--record") == 0) {
    const auto shape = dhs::bench::one_request("close", dhs::kCloseLocality);
    status = dhs::bench::write_load(dhs::bench::draw_load(shape), argv[2]);
  } else if (argc == 2 || argc == 3) {
    status = dhs::bench::run(argv[1], argc == 3 ? argv[2] : nullptr);
  } else {
    std::fprintf(stderr, "usage: trace_suite FOLDER [TRACE_FILE] | --record TRACE_FILE\n");
    return 2;
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "trace_suite: %s\n", std::string(status.message()).c_str());
  return 1;
}
