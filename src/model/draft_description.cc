#include "model/draft_description.h"

#include <fstream>
#include <iterator>

#include "dhisparse/base.h"
#include "model/checkpoint.h"
#include "model/json_value.h"
#include "model/mtp_checkpoint.h"

namespace dhs {
namespace {

ProposalKind kind_of(BlockDraftFamily family) {
  switch (family) {
    case BlockDraftFamily::kDflash:
      return ProposalKind::kChosen;
    case BlockDraftFamily::kDflash2:
      return ProposalKind::kCandidates;
    case BlockDraftFamily::kDspark:
      return ProposalKind::kDense;
  }
  return ProposalKind::kChosen;
}

absl::StatusOr<TargetConfig> config_of_target(const std::string& directory) {
  DHS_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(directory));
  return parse_target_config(checkpoint.config_json(), checkpoint.generation_config_json());
}

absl::Status check_kind(DraftKind wanted, BlockDraftFamily found) {
  const bool is_same = (wanted == DraftKind::kDflash && found == BlockDraftFamily::kDflash) ||
                       (wanted == DraftKind::kDflash2 && found == BlockDraftFamily::kDflash2) ||
                       (wanted == DraftKind::kDspark && found == BlockDraftFamily::kDspark);
  if (is_same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "draft.kind does not go with the checkpoint of draft.path, which is a ",
      block_draft_family_name(found), " draft; set draft.kind: ", block_draft_family_name(found)));
}

}  // namespace

DraftDescription describe(const BlockDraftConfig& config, DType page_dtype) {
  DraftDescription description;
  description.family = block_draft_family_name(config.family);
  description.num_proposals = config.num_proposals();
  description.kind = kind_of(config.family);
  description.num_candidates = config.selector_top_k;
  description.has_confidence = config.family == BlockDraftFamily::kDflash2 || config.has_confidence;
  description.target_layers.assign(config.target_layers.begin(), config.target_layers.end());
  description.page = {.dtype = page_dtype,
                      .num_layers = config.num_layers,
                      .num_kv_heads = config.num_kv_heads,
                      .head_dim = config.head_dim};
  description.context_window = config.context_window();
  return description;
}

absl::StatusOr<std::vector<float>> read_confidence_temperatures(const std::string& file,
                                                                int32_t num_proposals) {
  std::vector<float> temperatures;
  if (file.empty()) return temperatures;
  std::ifstream stream(file);
  if (!stream)
    return absl::NotFoundError(absl::StrCat("draft.temperatures: ", file, " cannot be read"));
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("draft.temperatures: ", file, ": ", why,
                                                   "; a JSON array of at most ", num_proposals,
                                                   " positive numbers is wanted"));
  };
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const absl::StatusOr<JsonValue> root = parse_json(text);
  if (!root.ok()) return wrong(root.status().message());
  if (root->array() == nullptr) return wrong(absl::StrCat("is ", json_kind_name(*root)));
  for (const JsonValue& value : *root->array()) {
    const double number = value.real() != nullptr      ? *value.real()
                          : value.integer() != nullptr ? static_cast<double>(*value.integer())
                                                       : 0;
    if (!(number > 0) || number > 1e6) return wrong(absl::StrCat("holds ", json_excerpt(value)));
    temperatures.push_back(static_cast<float>(number));
  }
  if (std::ssize(temperatures) > num_proposals) {
    return wrong(absl::StrCat("holds ", temperatures.size(), " numbers"));
  }
  return temperatures;
}

absl::StatusOr<DraftDescription> describe_draft(const DraftConfig& config,
                                                const std::string& target_directory,
                                                DType page_dtype) {
  if (config.kind == DraftKind::kMtp) {
    DHS_RETURN_IF_ERROR(open_mtp_checkpoint(config.path, target_directory).status());
    return describe_mtp();
  }
  DHS_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(config.path));
  DHS_ASSIGN_OR_RETURN(const BlockDraftConfig draft,
                       parse_block_draft_config(checkpoint.config_json()));
  DHS_RETURN_IF_ERROR(check_kind(config.kind, draft.family));
  DHS_ASSIGN_OR_RETURN(const TargetConfig target, config_of_target(target_directory));
  DHS_RETURN_IF_ERROR(check_target(draft, target));
  return describe(draft, page_dtype);
}

}  // namespace dhs
