#include <algorithm>
#include <utility>

#include "src/config/config_key.h"
#include "src/config/key_types.h"

namespace dhs {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kTiB = int64_t{1} << 40;
// Positions are 32 bits wide; half the range leaves room for their sums.
constexpr int64_t kMaxTokens = int64_t{1} << 30;

using Keys = std::vector<ConfigKey>;

Keys model_keys() {
  constexpr auto kModel = &EngineConfig::model;
  Keys keys = {
      directory_key("model.path", Field{kModel, &ModelConfig::path}),
      text_key("model.name", Field{kModel, &ModelConfig::name}),
      integer_key("model.max_context", Field{kModel, &ModelConfig::max_context}, {0, kMaxTokens}),
  };
  keys[0].required = true;
  return keys;
}

Keys draft_keys() {
  constexpr auto kDraft = &EngineConfig::draft;
  const std::vector<std::pair<std::string, DraftKind>> kinds = {
      {"none", DraftKind::kNone},     {"dflash2", DraftKind::kDflash2},
      {"dspark", DraftKind::kDspark}, {"dflash", DraftKind::kDflash},
      {"mtp", DraftKind::kMtp},       {"ngram", DraftKind::kNgram}};
  constexpr Range kNgram = {1, 32};
  return {
      choice_key("draft.kind", Field{kDraft, &DraftConfig::kind}, kinds),
      optional_path_key("draft.path", "a directory", Field{kDraft, &DraftConfig::path}),
      optional_path_key("draft.temperatures", "a file", Field{kDraft, &DraftConfig::temperatures}),
      auto_integer_key("draft.max_tokens", Field{kDraft, &DraftConfig::max_tokens}, {1, 31}),
      integer_key("draft.ngram_min", Field{kDraft, &DraftConfig::ngram_min}, kNgram),
      integer_key("draft.ngram_max", Field{kDraft, &DraftConfig::ngram_max}, kNgram),
  };
}

Keys memory_keys() {
  constexpr auto kDevice = &EngineConfig::device;
  constexpr auto kParallel = &EngineConfig::parallel;
  constexpr auto kKv = &EngineConfig::kv;
  constexpr auto kResidency = &EngineConfig::residency;
  const std::vector<std::pair<std::string, BackendKind>> backends = {
      {"auto", BackendKind::kAuto}, {"cpu", BackendKind::kCpu}, {"cuda", BackendKind::kCuda}};
  const std::vector<std::pair<std::string, RowFormat>> formats = {
      {"f32", RowFormat::kF32}, {"bf16", RowFormat::kBf16}, {"fp8", RowFormat::kFp8}};
  const std::vector<std::pair<std::string, ResidencyMode>> modes = {
      {"adaptive", ResidencyMode::kAdaptive},
      {"fixed", ResidencyMode::kFixed},
      {"resident", ResidencyMode::kResident}};
  const std::vector<std::pair<std::string, ParallelMode>> parallel_modes = {
      {"tensor", ParallelMode::kTensor}, {"data", ParallelMode::kData}};
  const std::vector<std::pair<std::string, GemmProvider>> gemm_providers = {
      {"own", GemmProvider::kOwn}, {"library", GemmProvider::kLibrary}};
  return {
      choice_key("device.backend", Field{kDevice, &DeviceConfig::backend}, backends),
      size_key("device.memory", Field{kDevice, &DeviceConfig::memory_bytes},
               {.min = 64 * kKiB, .max = 16 * kTiB}),
      size_key("device.chunk", Field{kDevice, &DeviceConfig::chunk_bytes},
               {.min = 4 * kKiB, .max = kGiB, .step = 4 * kKiB}),
      integer_key("device.threads", Field{kDevice, &DeviceConfig::num_threads}, {0, 1024}),
      integer_key("device.ordinal", Field{kDevice, &DeviceConfig::ordinal}, {0, 1023}),
      size_key("device.scratch", Field{kDevice, &DeviceConfig::scratch_bytes},
               {.min = kMiB, .max = kTiB}),
      choice_key("device.gemm", Field{kDevice, &DeviceConfig::gemm}, gemm_providers),
      size_key("device.link_bandwidth", Field{kDevice, &DeviceConfig::link_bandwidth},
               {.min = 0, .max = 16 * kTiB}),
      duration_key("device.link_latency", Field{kDevice, &DeviceConfig::link_latency},
                   absl::ZeroDuration()),
      bool_key("device.emulate_link", Field{kDevice, &DeviceConfig::emulate_link}),
      integer_key("parallel.ranks", Field{kParallel, &ParallelConfig::num_ranks}, {1, 64}),
      choice_key("parallel.mode", Field{kParallel, &ParallelConfig::mode}, parallel_modes),
      size_key("host.pool", Field{&EngineConfig::host, &HostConfig::pool_bytes},
               {.min = kMiB, .max = 64 * kTiB}),
      choice_key("kv.row_format", Field{kKv, &KvConfig::row_format}, formats),
      choice_key("kv.index_format", Field{kKv, &KvConfig::index_format}, formats),
      bool_key("kv.prefix_cache", Field{kKv, &KvConfig::prefix_cache}),
      choice_key("residency.mode", Field{kResidency, &ResidencyConfig::mode}, modes),
      integer_key("residency.fixed_rows_per_request",
                  Field{kResidency, &ResidencyConfig::fixed_rows_per_request}, {1, kMaxTokens}),
      integer_key("residency.headroom_steps", Field{kResidency, &ResidencyConfig::headroom_steps},
                  {0, 1000}),
      duration_key("residency.grow_delay", Field{kResidency, &ResidencyConfig::grow_delay},
                   absl::ZeroDuration()),
      fraction_key("residency.grow_link_share",
                   Field{kResidency, &ResidencyConfig::grow_link_share}),
      fraction_key("residency.grow_worth", Field{kResidency, &ResidencyConfig::grow_worth}),
      text_key("residency.trace", Field{kResidency, &ResidencyConfig::trace}),
      size_key("residency.trace_limit", Field{kResidency, &ResidencyConfig::trace_limit_bytes},
               {.min = kMiB, .max = 16 * kTiB}),
  };
}

Keys scheduler_keys() {
  constexpr auto kScheduler = &EngineConfig::scheduler;
  return {
      integer_key("scheduler.max_running", Field{kScheduler, &SchedulerConfig::max_running},
                  {1, 65536}),
      integer_key("scheduler.max_batched_tokens",
                  Field{kScheduler, &SchedulerConfig::max_batched_tokens}, {1, 1 << 20}),
      integer_key("scheduler.max_queued_requests",
                  Field{kScheduler, &SchedulerConfig::max_queued_requests}, {1, 1 << 20}),
      integer_key("scheduler.max_queued_tokens",
                  Field{kScheduler, &SchedulerConfig::max_queued_tokens}, {1, int64_t{1} << 40}),
      integer_key("scheduler.prefill_chunk", Field{kScheduler, &SchedulerConfig::prefill_chunk},
                  {1, 1 << 20}),
      duration_key("scheduler.tpot_target", Field{kScheduler, &SchedulerConfig::tpot_target},
                   absl::Milliseconds(1)),
  };
}

Keys limits_keys() {
  constexpr auto kLimits = &EngineConfig::limits;
  return {
      size_key("limits.max_message", Field{kLimits, &LimitsConfig::max_message_bytes},
               {.min = kKiB, .max = kGiB}),
      integer_key("limits.max_prompt_tokens", Field{kLimits, &LimitsConfig::max_prompt_tokens},
                  {1, kMaxTokens}),
      size_key("limits.max_prompt", Field{kLimits, &LimitsConfig::max_prompt_bytes},
               {.min = 1, .max = kGiB}),
      integer_key("limits.max_stop_strings", Field{kLimits, &LimitsConfig::max_stop_strings},
                  {0, 1024}),
      size_key("limits.max_stop_string", Field{kLimits, &LimitsConfig::max_stop_string_bytes},
               {.min = 1, .max = 64 * kKiB}),
      integer_key("limits.max_stop_token_ids", Field{kLimits, &LimitsConfig::max_stop_token_ids},
                  {0, 65536}),
      integer_key("limits.max_logprobs", Field{kLimits, &LimitsConfig::max_logprobs}, {0, 1024}),
      integer_key("limits.max_adjusted_tokens", Field{kLimits, &LimitsConfig::max_adjusted_tokens},
                  {0, 1 << 20}),
      integer_key("limits.max_streams_per_connection",
                  Field{kLimits, &LimitsConfig::max_streams_per_connection}, {1, 1 << 20}),
      size_key("limits.max_metadata", Field{kLimits, &LimitsConfig::max_metadata_bytes},
               {.min = kKiB, .max = 64 * 1024 * kKiB}),
      size_key("limits.max_arriving", Field{kLimits, &LimitsConfig::max_arriving_bytes},
               {.min = kKiB, .max = 1024 * kGiB}),
      size_key("limits.max_unread_output", Field{kLimits, &LimitsConfig::max_unread_output_bytes},
               {.min = kKiB, .max = kGiB}),
      duration_key("limits.park_after", Field{kLimits, &LimitsConfig::park_after},
                   absl::Milliseconds(1)),
      duration_key("limits.max_request_time", Field{kLimits, &LimitsConfig::max_request_time},
                   absl::Milliseconds(1)),
  };
}

Keys server_keys() {
  constexpr auto kServer = &EngineConfig::server;
  const std::vector<std::pair<std::string, std::string>> levels = {
      {"debug", "debug"}, {"info", "info"}, {"warning", "warning"}, {"error", "error"}};
  return {
      host_port_key("server.listen", Field{kServer, &ServerConfig::listen}),
      host_port_or_off_key("server.metrics", Field{kServer, &ServerConfig::metrics}),
      bool_key("server.reflection", Field{kServer, &ServerConfig::reflection}),
      duration_key("server.drain_timeout", Field{kServer, &ServerConfig::drain_timeout},
                   absl::ZeroDuration()),
      choice_key("log.level", Field{&EngineConfig::log, &LogConfig::level}, levels),
  };
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const Keys kKeys = [] {
    Keys all;
    for (Keys keys : {model_keys(), draft_keys(), memory_keys(), scheduler_keys(), limits_keys(),
                      server_keys()}) {
      std::move(keys.begin(), keys.end(), std::back_inserter(all));
    }
    return all;
  }();
  return kKeys;
}

const ConfigKey* find_config_key(std::string_view name) {
  for (const ConfigKey& key : config_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

const KeyNames& config_key_names() {
  static const KeyNames kNames = [] {
    std::vector<std::string> names;
    for (const ConfigKey& key : config_keys()) names.push_back(key.name);
    return KeyNames(std::move(names));
  }();
  return kNames;
}

// The file of residency.trace is opened at start.
bool is_live(std::string_view name) {
  const std::string_view section = section_of(name);
  return (section == "residency" && !name.starts_with("residency.trace")) ||
         section == "scheduler" || section == "log";
}

}  // namespace dhs
