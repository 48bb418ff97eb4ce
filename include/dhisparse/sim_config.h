// What a simulation assumes: hardware, model, deployment, costs, locality, drafts and load.
//
// The files are as strict as the daemon's configuration.
// docs/SIMULATOR.md gives meaning and default of every key. Numbers are of one GPU where a GPU is
// meant; sizes are bytes, rates bytes or operations a second.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dhisparse/config.h"

namespace dhs {

struct SimHardware {
  std::string name;
  int64_t hbm_bytes = 0;
  double hbm_bandwidth = 0;
  double fp8_flops = 0;
  double fp4_flops = 0;
  double mla_flops = 0;  // of the sparse attention kernel
  // Gathering scattered rows of 288, 656 and 1152 bytes from host memory; linear between them.
  double link_bandwidth_288 = 0;
  double link_bandwidth_656 = 0;
  double link_bandwidth_1152 = 0;
  double exchange_bandwidth = 350e9;  // between the GPUs, all to all
  int64_t host_bytes = 0;
};

struct SimModel {
  std::string name;
  int64_t layers = 0;
  int64_t moe_layers = 0;
  int64_t hidden_dim = 0;
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  double dense_parameters = 0;  // attention, dense layers, shared experts
  double head_parameters = 0;   // of the head; the embedding has as many
  double expert_parameters = 0;
  int64_t extra_bytes = 0;  // tables kept in HBM, split over the GPUs
  int64_t top_k = 0;
  int64_t index_groups = 0;
  int64_t row_bytes = 0;
  double rows_per_token = 0;       // stored
  int64_t rows_per_selection = 0;  // read per query row and selected position, all layers
  int64_t index_row_bytes = 0;
  double index_rows_per_token = 0;  // stored
  // Index rows scanned per query row: scan * context + capped_scan * min(context, scan_cap).
  double scan = 0;
  double capped_scan = 0;
  int64_t scan_cap = 0;
  int64_t index_heads = 0;
  int64_t index_head_dim = 0;
  int64_t attention_layers = 0;
  int64_t attention_rows = 0;  // of a query row and layer
  int64_t attention_heads = 0;
  int64_t attention_dims = 0;  // multiplied per row and head, keys and values
};

struct SimDeployment {
  int num_gpus = 8;  // attention data parallel, experts over all of them
  double dense_weight_bytes = 1;
  double expert_weight_bytes = 1;
  double head_weight_bytes = 2;
  double hbm_share = 0.92;  // of HBM that may be used
  int64_t workspace_bytes = 6'000'000'000;
  int64_t chunk_bytes = int64_t{2} << 20;
};

// Achieved shares of peak rates, and what does not depend on sizes.
struct SimCosts {
  double weight_bandwidth = 0.80;
  double gemm = 0.45;
  double attention_bandwidth = 0.60;
  double attention = 0.85;
  double index_bandwidth = 0.75;
  double index = 0.35;
  double top_k_bandwidth = 0.50;
  int64_t top_k_passes = 3;
  double expert_imbalance = 1.15;
  int64_t exchange_element_bytes = 3;  // dispatched and combined
  absl::Duration layer_time = absl::Microseconds(60);
  absl::Duration step_time = absl::Microseconds(1500);
  double hide = 0.5;         // share of the fetch that other work covers
  double hide_verify = 0.5;  // the same, in steps that verify drafts
};

enum class SimLocality { kClose, kWide, kCustom };

struct SimLocalityConfig {
  SimLocality regime = SimLocality::kClose;
  // regime custom: missed shares under LRU with k, 2k and 4k rows.
  double at_k = 0.30;
  double at_2k = 0.134;
  double at_4k = 0.067;
  double spread = 36;  // between the groups' 5th and 95th percentile
  int64_t shift_period = 400;
  int64_t shift_steps = 50;
  double shift_factor = 3;
  int num_candidates = 4;  // rows that a drawn one is chosen from, by how long they are in use
};

struct SimDraft {
  std::string name;
  int num_tokens = 0;     // proposed per step; 0: no speculation, no draft memory
  double acceptance = 0;  // of a draft token whose predecessors were accepted
  // Requests differ by up to so much of the way from that to 0 or 1, whichever is nearer; and so do
  // a request's drafts among each other, which then say how sure they are. 0: all alike.
  double request_spread = 0;
  double token_spread = 0;
  bool is_adaptive = false;  // the scheduler chooses how many to verify; else all
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;  // per running request
  absl::Duration time = absl::Milliseconds(1);
};

struct SimWorkload {
  int64_t context = 100'000;  // prompt tokens; they are prefilled elsewhere
  int64_t output_tokens = 4096;
  int64_t concurrency = 128;  // offered to the whole deployment
  // Later concurrencies, in order of steps.
  struct Change {
    int64_t step = 0;  // counted from the first measured one
    int64_t concurrency = 0;
  };
  std::vector<Change> changes;
  // A recording (residency.trace) whose requests, in turn, are the workload: their lengths and
  // selections count, not context, output_tokens, run.sampled_groups and the locality. Empty: none.
  std::string trace;
};

struct SimRun {
  int sampled_groups = 3;  // index groups simulated, each for an equal part of the model's
  int64_t warmup_steps = 40;
  int64_t measured_steps = 60;
  // Requests that are there at the start find their share of the row caches filled with the rows
  // they used last.
  bool warm = true;
  int64_t series_steps = 0;  // steps summed up in a point of the time series; 0: no series
  int64_t seed = 1;
};

struct SimScheduler {
  int max_running = 4096;  // on a rank
};

struct SimConfig {
  SimHardware hardware;
  SimModel model;
  SimDeployment deployment;
  SimCosts cost;
  SimLocalityConfig locality;
  SimDraft draft;
  SimWorkload workload;
  SimRun run;
  ResidencyConfig residency;  // the daemon's own keys
  SimScheduler scheduler;
};

struct LoadedSimConfig {
  SimConfig config;
  std::vector<ConfigValue> provenance;  // every key, in the order of the structs above
};

// Every key with its value as in a file; the sources are empty.
std::vector<ConfigValue> config_values(const SimConfig& config);

// Reads the files in order, later values winning, then the overrides. Errors as load_config's.
// Every file starts with schema_version; what is required may stand in any of them.
absl::StatusOr<LoadedSimConfig> load_sim_config(const std::vector<std::string>& paths,
                                                const std::vector<std::string>& overrides);

}  // namespace dhs
