// config: one YAML file and --set overrides in, immutable plain structs out.
//
// Strict: an unknown or duplicate key, a wrong type, a value out of range or a contradiction is an
// error with file:line:column and, for a misspelt key, a suggestion. All errors of a file are
// reported at once. Relative paths are relative to the file that names them.
// docs/CONFIG.md gives meaning, default and cost of every key. In the file a size has its unit in
// the value, not in the key: memory_bytes is `memory: 64MiB`.
#pragma once

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dhisparse/tensor.h"  // RowFormat

namespace dhs {

enum class BackendKind { kAuto, kCpu, kCuda };
enum class ResidencyMode { kAdaptive, kFixed, kResident };
enum class ParallelMode { kTensor, kData };
enum class GemmProvider { kOwn, kLibrary };
enum class DraftKind { kNone, kDflash2, kDspark, kDflash, kMtp, kNgram };

struct ModelConfig {
  std::string path;         // a Hugging Face directory; absolute after loading
  std::string name;         // how clients see it; default: the directory's last component
  int64_t max_context = 0;  // tokens per sequence; 0: what the checkpoint says
};

struct DraftConfig {
  DraftKind kind = DraftKind::kNone;
  std::string path;  // of the draft's checkpoint; absolute; empty, kind mtp: in the target's own
  std::string temperatures;  // file: by place, what divides the logit of a draft's confidence
  int max_tokens = 0;  // that a request verifies in a step, as many each time; 0: chosen by load
  // Kind ngram: the longest and the shortest end of a sequence that is looked up in it.
  int ngram_min = 2;
  int ngram_max = 4;
};

struct DeviceConfig {
  BackendKind backend = BackendKind::kAuto;
  int64_t memory_bytes = int64_t{64} << 20;   // the pool of chunks (CPU: weights lie beside it)
  int64_t chunk_bytes = int64_t{2} << 20;     // the unit that moves between owners
  int num_threads = 0;                        // CPU backend; 0: every core of the process
  int ordinal = 0;                            // CUDA backend: which of the visible GPUs
  int64_t scratch_bytes = int64_t{64} << 20;  // CUDA backend: of each of the two streams
  GemmProvider gemm = GemmProvider::kOwn;     // CUDA backend: whose matrix products; cuBLASLt's
  int64_t link_bandwidth = 0;                 // bytes a second between the tiers; 0: not known
  absl::Duration link_latency;                // of one fetch, when emulated
  bool emulate_link = false;                  // CPU backend: fetches take as long as that
};

struct ParallelConfig {
  int num_ranks = 1;  // one per GPU; on the CPU they share the cores. device, host: of each
  ParallelMode mode = ParallelMode::kTensor;
};

struct HostConfig {
  int64_t pool_bytes = int64_t{256} << 20;  // the arena of host blocks
};

struct KvConfig {
  RowFormat row_format = RowFormat::kBf16;
  RowFormat index_format = RowFormat::kBf16;
  bool prefix_cache = true;
};

struct ResidencyConfig {
  ResidencyMode mode = ResidencyMode::kAdaptive;
  int64_t fixed_rows_per_request = 4096;  // mode fixed: per index group and running request
  // Mode adaptive. Device memory left free: what requests come to require in so many steps.
  int headroom_steps = 2;
  absl::Duration grow_delay = absl::Seconds(1);  // after a release that a requirement forced
  double grow_link_share = 0.3;                  // of what the link moves in a step
  double grow_worth = 0.01;                      // of a step, that fetching takes at least
  std::string trace;                             // file to record selections in; empty: none
  int64_t trace_limit_bytes = int64_t{1} << 30;  // that it may have, about
};

// What the scheduler has to know of a draft.
struct DraftSchedule {
  // Of a request to verify in a step: the most, or, where that is not adaptive, as many as were
  // proposed up to it.
  int num_tokens = 0;
  bool is_adaptive = false;
  // Behind a request's tokens and drafts, that proposing more of them writes rows for.
  int num_lookahead_tokens = 0;
  // Prompt lookup proposes, not the executor: by ends of so many tokens. 0: no.
  int ngram_min = 0;
  int ngram_max = 0;
};

struct SchedulerConfig {
  int max_running = 32;          // running requests
  int max_batched_tokens = 512;  // query rows of one step
  int max_queued_requests = 1024;
  int64_t max_queued_tokens = int64_t{8} << 20;  // prompt tokens waiting in the queue
  int prefill_chunk = 256;                       // prompt tokens of a step in which requests decode
  // That steps in which requests decode should not exceed.
  absl::Duration tpot_target = absl::InfiniteDuration();
  DraftSchedule draft;  // no keys: it follows from the draft (draft_schedule)
};

// Of a draft that proposes at most num_proposed tokens. Prompt lookup, which could propose any
// number, proposes kNgramTokens.
inline constexpr int kNgramTokens = 8;
DraftSchedule draft_schedule(const DraftConfig& draft, int num_proposed);

struct LimitsConfig {
  int64_t max_message_bytes = int64_t{64} << 20;
  int64_t max_prompt_tokens = int64_t{1} << 20;
  int64_t max_prompt_bytes = int64_t{32} << 20;  // of a text prompt
  int max_stop_strings = 16;
  int max_stop_string_bytes = 256;
  int max_stop_token_ids = 64;
  int max_logprobs = 20;
  int64_t max_adjusted_tokens = 4096;  // of one draw, whose logits penalties and biases change
  int max_streams_per_connection = 256;
  int64_t max_metadata_bytes = int64_t{16} << 10;       // of one call
  int64_t max_arriving_bytes = int64_t{512} << 20;      // of requests not yet tokenized, all calls
  int64_t max_unread_output_bytes = int64_t{32} << 20;  // that waits for one client
  absl::Duration park_after = absl::Seconds(10);        // that a client has read nothing
  absl::Duration max_request_time = absl::InfiniteDuration();
};

struct ServerConfig {
  std::string listen = "127.0.0.1:50051";
  std::string metrics = "127.0.0.1:9400";  // HTTP; "off": none
  bool reflection = true;
  absl::Duration drain_timeout = absl::Seconds(120);
};

struct LogConfig {
  std::string level = "info";  // debug | info | warning | error
};

struct EngineConfig {
  ModelConfig model;
  DraftConfig draft;
  DeviceConfig device;
  ParallelConfig parallel;
  HostConfig host;
  KvConfig kv;
  ResidencyConfig residency;
  SchedulerConfig scheduler;
  LimitsConfig limits;
  ServerConfig server;
  LogConfig log;
};

// Where the value of a key came from, for --print-config.
struct ConfigValue {
  std::string key;     // "residency.mode"
  std::string value;   // as a YAML scalar
  std::string source;  // "default", "--set" or the place of the value, "demo.yaml:12:9"
};

struct LoadedConfig {
  EngineConfig config;
  std::vector<ConfigValue> provenance;  // every key, in the order of the structs above
};

// Loads `path`, then applies `overrides` ("residency.mode=fixed"; values are YAML scalars; the last
// of a key wins), then validates. model.path becomes absolute: relative to the directory of the
// file or, from an override, to the working directory. Whether it exists is not checked here.
//
// INVALID_ARGUMENT carries one line per error, the file's by position and then the overrides':
//   demo.yaml:12:9: residency.mode: what is wrong, the limit; what to do
//   --set residency.mod=fixed: what is wrong; what to do
// The name of the file is `path` as given. A wrong value is reported at the value; an unknown or
// duplicate key, or one that contradicts another, at the key. NOT_FOUND when the file cannot be
// read. Thread-safe; reads nothing but the file and the working directory.
absl::StatusOr<LoadedConfig> load_config(const std::string& path,
                                         const std::vector<std::string>& overrides);

// The effective configuration as YAML that load_config reads back, each value with its source.
std::string print_config(const LoadedConfig& loaded);

// What differs between two configurations, in the order of the keys.
struct ConfigChange {
  std::string key;
  std::string before;  // as YAML scalars
  std::string after;
  bool is_live = false;  // a running daemon takes it over; otherwise it needs a restart
};
std::vector<ConfigChange> config_changes(const LoadedConfig& before, const LoadedConfig& after);

// "64MiB", "1.5GiB", "4096", "2MB" -> bytes. A fraction (up to six digits) is rounded down to whole
// bytes. INVALID_ARGUMENT when malformed or above 2^63 - 1.
absl::StatusOr<int64_t> parse_bytes(std::string_view text);
// "30s", "25ms", "1.5h", "inf" (units us, ms, s, m, h). Rounded down to whole microseconds.
absl::StatusOr<absl::Duration> parse_duration(std::string_view text);

}  // namespace dhs
