#include "src/config/parse_config.h"

#include <filesystem>
#include <utility>

#include "dhisparse/base.h"
#include "src/config/config_key.h"
#include "src/config/key_reader.h"
#include "src/config/quantity.h"
#include "src/config/suggest.h"

namespace dhs {
namespace {

// Index keys, rows and draft KV each hold one, and one has to be free to move anything.
constexpr int64_t kMinChunks = 4;

std::vector<BoundKey> bind_keys(EngineConfig& config) {
  std::vector<BoundKey> keys;
  for (const ConfigKey& key : config_keys()) keys.push_back(bind_key(key, config));
  return keys;
}

// One run over one text.
class ConfigParser {
 public:
  ConfigParser() : reader_(config_key_names(), bind_keys(config_)) {}

  KeyReader& reader() { return reader_; }
  absl::StatusOr<LoadedConfig> finish();

 private:
  void fill_derived_values();
  void find_contradictions();
  void check_chunks();
  void check_batch();
  void check_link();
  void check_draft();
  bool all_valid(std::initializer_list<std::string_view> keys) const {
    return reader_.all_valid(keys);
  }
  void blame(std::initializer_list<std::string_view> keys, std::string_view message) {
    reader_.blame(keys, message);
  }

  EngineConfig config_;
  KeyReader reader_;
};

void ConfigParser::fill_derived_values() {
  if (!config_.model.name.empty() || !all_valid({"model.path", "model.name"})) return;
  config_.model.name = std::filesystem::path(config_.model.path).filename().string();
  if (config_.model.name.empty()) {
    blame({"model.path"}, absl::StrCat(quote(config_.model.path), " has no last component to name ",
                                       "the model after; set model.name"));
  }
}

void ConfigParser::find_contradictions() {
  check_chunks();
  check_batch();
  check_link();
  check_draft();
}

void ConfigParser::check_draft() {
  const DraftConfig& draft = config_.draft;
  if (all_valid({"draft.kind", "draft.path"})) {
    const bool needs_path = draft.kind == DraftKind::kDflash2 || draft.kind == DraftKind::kDspark ||
                            draft.kind == DraftKind::kDflash;
    if (needs_path && draft.path.empty()) {
      blame({"draft.kind"},
            "this kind of draft has a checkpoint of its own and draft.path is not given; set it to "
            "the draft's directory");
    }
    if (draft.kind == DraftKind::kNgram && !draft.path.empty()) {
      blame({"draft.path", "draft.kind"},
            absl::StrCat("draft.kind is ngram, which has no checkpoint, and draft.path is ",
                         quote(draft.path), "; remove draft.path or set another draft.kind"));
    }
  }
  if (all_valid({"draft.kind", "draft.temperatures"}) && !draft.temperatures.empty() &&
      draft.kind != DraftKind::kDspark) {
    blame({"draft.temperatures", "draft.kind"},
          absl::StrCat("draft.temperatures (", quote(draft.temperatures),
                       ") is for the confidence that drafts of kind dspark have, and draft.kind is "
                       "another; remove draft.temperatures or set draft.kind: dspark"));
  }
  if (!all_valid({"draft.ngram_min", "draft.ngram_max"})) return;
  if (draft.ngram_min <= draft.ngram_max) return;
  blame({"draft.ngram_min", "draft.ngram_max"},
        absl::StrCat("draft.ngram_min (", draft.ngram_min, ") is larger than draft.ngram_max (",
                     draft.ngram_max, "); lower draft.ngram_min or raise draft.ngram_max"));
}

void ConfigParser::check_link() {
  const DeviceConfig& device = config_.device;
  if (!device.emulate_link) return;
  if (all_valid({"device.link_bandwidth"}) && device.link_bandwidth == 0) {
    blame({"device.emulate_link"},
          "device.emulate_link is true and device.link_bandwidth is not given; set it to the bytes "
          "a second of the link");
  }
  if (all_valid({"device.backend"}) && device.backend == BackendKind::kCuda) {
    blame({"device.emulate_link", "device.backend"},
          "device.emulate_link is true and device.backend is cuda, which has a link of its own; "
          "set device.backend to cpu, or device.emulate_link to false");
  }
}

// Every running request computes at least one token a step.
void ConfigParser::check_batch() {
  if (!all_valid({"scheduler.max_running", "scheduler.max_batched_tokens"})) return;
  const SchedulerConfig& scheduler = config_.scheduler;
  if (scheduler.max_running <= scheduler.max_batched_tokens) return;
  blame(
      {"scheduler.max_running", "scheduler.max_batched_tokens"},
      absl::StrCat("scheduler.max_running (", scheduler.max_running,
                   ") is larger than scheduler.max_batched_tokens (", scheduler.max_batched_tokens,
                   "); lower scheduler.max_running or raise scheduler.max_batched_tokens"));
}

void ConfigParser::check_chunks() {
  if (!all_valid({"device.memory", "device.chunk"})) return;
  const int64_t memory = config_.device.memory_bytes;
  const int64_t chunk = config_.device.chunk_bytes;
  if (chunk > memory) {
    blame({"device.chunk", "device.memory"},
          absl::StrCat("device.chunk (", format_bytes(chunk), ") is larger than device.memory (",
                       format_bytes(memory), "); lower device.chunk or raise device.memory"));
  } else if (memory / chunk < kMinChunks) {
    blame({"device.memory", "device.chunk"},
          absl::StrCat("device.memory (", format_bytes(memory), ") holds ", memory / chunk,
                       " chunks of device.chunk (", format_bytes(chunk), "), the minimum is ",
                       kMinChunks, "; raise device.memory to ", format_bytes(kMinChunks * chunk),
                       " or lower device.chunk"));
  }
}

absl::StatusOr<LoadedConfig> ConfigParser::finish() {
  if (reader_.is_complete()) {
    reader_.require_keys();
    fill_derived_values();
    find_contradictions();
  }
  DHS_ASSIGN_OR_RETURN(std::vector<ConfigValue> values, reader_.finish());
  return LoadedConfig{.config = config_, .provenance = std::move(values)};
}

}  // namespace

absl::StatusOr<LoadedConfig> parse_config(std::string_view text, const std::string& file,
                                          const std::vector<std::string>& overrides) {
  ConfigParser parser;
  parser.reader().read_file(file, text);
  for (const std::string& override_text : overrides) parser.reader().apply_override(override_text);
  return parser.finish();
}

absl::StatusOr<LoadedConfig> load_config(const std::string& path,
                                         const std::vector<std::string>& overrides) {
  DHS_ASSIGN_OR_RETURN(const std::string text, read_source(path));
  return parse_config(text, path, overrides);
}

}  // namespace dhs
