
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer_spec.h"

namespace dhs {
namespace {

using nlohmann::json;

// A value and where it stands, for messages. Lives no longer than the document.
class Node {
 public:
  Node(const json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  template <class... Parts>
  absl::Status error(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", path_, ": ", parts...));
  }

  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  bool has_non_null(const char* key) const { return has(key) && !(*value_)[key].is_null(); }

  // Of an object; a missing key is null.
  Node operator[](const char* key) const {
    static const json kNull;
    const std::string path = path_.empty() ? key : absl::StrCat(path_, ".", key);
    return has(key) ? Node((*value_)[key], path) : Node(kNull, path);
  }
  // Of an array.
  Node operator[](size_t idx) const {
    return Node((*value_)[idx], absl::StrCat(path_, "[", idx, "]"));
  }
  size_t size() const { return value_->size(); }

  absl::StatusOr<std::string> string() const {
    if (!value_->is_string()) return error("must be a string, is ", value_->type_name());
    return value_->get<std::string>();
  }
  absl::StatusOr<bool> boolean() const {
    if (!value_->is_boolean()) return error("must be true or false, is ", value_->type_name());
    return value_->get<bool>();
  }
  absl::StatusOr<TokenId> token_id() const {
    const bool fits = value_->is_number_unsigned() &&
                      value_->get<uint64_t>() < static_cast<uint64_t>(kMaxVocabSize);
    if (!fits) {
      return error("must be an id in [0, ", kMaxVocabSize, "), is ", value_->dump().substr(0, 40));
    }
    return value_->get<TokenId>();
  }
  absl::Status expect_array() const {
    if (!value_->is_array()) return error("must be an array, is ", value_->type_name());
    return absl::OkStatus();
  }

  // An object with no other keys than these: an unknown one could change the result.
  absl::Status expect_object(std::initializer_list<std::string_view> keys) const {
    if (!value_->is_object()) return error("must be an object, is ", value_->type_name());
    for (const auto& item : value_->items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
        return error("unknown key '", item.key(), "'");
      }
    }
    return absl::OkStatus();
  }

  std::string type() const {
    const Node type = (*this)["type"];
    return type.value().is_string() ? type.value().get<std::string>() : std::string();
  }

 private:
  const json* value_;
  std::string path_;
};

absl::Status unsupported_type(const Node& node, std::string_view supported) {
  return node["type"].error("'", node.type(),
                            "' is not supported; supported: ", to_absl(supported));
}

// The elements of (nested) Sequences in order; a plain component is a sequence of one.
absl::Status flatten(const Node& node, const char* list_key, size_t depth, std::vector<Node>& out) {
  constexpr size_t kMaxDepth = 8;
  if (node.value().is_null()) return absl::OkStatus();
  if (depth > kMaxDepth) return node.error("Sequences nested more than ", kMaxDepth, " deep");
  if (node.type() != "Sequence") {
    out.push_back(node);
    if (out.size() > kMaxPreTokenizerSteps) {
      return node.error("more than ", kMaxPreTokenizerSteps, " components");
    }
    return absl::OkStatus();
  }
  DHS_RETURN_IF_ERROR(node.expect_object({"type", list_key}));
  const Node list = node[list_key];
  DHS_RETURN_IF_ERROR(list.expect_array());
  for (size_t i = 0; i < list.size(); ++i) {
    DHS_RETURN_IF_ERROR(flatten(list[i], list_key, depth + 1, out));
  }
  return absl::OkStatus();
}

// ---- model ------------------------------------------------------------------------------------

absl::Status parse_vocab(const Node& vocab, BpeSpec& bpe) {
  if (!vocab.value().is_object()) return vocab.error("must be an object");
  bpe.vocab.reserve(vocab.size());
  for (const auto& item : vocab.value().items()) {
    DHS_ASSIGN_OR_RETURN(
        const TokenId id,
        Node(item.value(), absl::StrCat(vocab.path(), "['", item.key(), "']")).token_id());
    bpe.vocab.push_back({item.key(), id});
  }
  return absl::OkStatus();
}

// "left right", or ["left", "right"] (whose parts may contain spaces).
absl::StatusOr<std::pair<std::string, std::string>> parse_merge(const Node& merge) {
  const json& value = merge.value();
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
  }
  if (!value.is_string()) return merge.error("must be a string or a pair of strings");
  const std::string text = value.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return merge.error("'", text, "' must have exactly one space");
  }
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

absl::Status parse_merges(const Node& merges, BpeSpec& bpe) {
  DHS_RETURN_IF_ERROR(merges.expect_array());
  bpe.merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const Node merge = merges[i];
    const bool is_version_line =
        merge.value().is_string() &&
        merge.value().get_ref<const std::string&>().starts_with("#version");
    if (is_version_line) continue;
    DHS_ASSIGN_OR_RETURN(auto pair, parse_merge(merge));
    bpe.merges.push_back(std::move(pair));
  }
  return absl::OkStatus();
}

absl::StatusOr<BpeSpec> parse_model(const Node& model) {
  // Files of the first versions have no type.
  if (model.has("type") && model.type() != "BPE") return unsupported_type(model, "BPE");
  DHS_RETURN_IF_ERROR(model.expect_object(
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  const json& dropout = model["dropout"].value();
  if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0.0)) {
    return model["dropout"].error("must be null: encoding would be random");
  }
  if (model.has_non_null("unk_token")) return model["unk_token"].error("must be null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has_non_null(key) && model[key].value() != "") {
      return model[key].error("must be null or empty");
    }
  }
  if (model.has_non_null("byte_fallback") && model["byte_fallback"].value() != false) {
    return model["byte_fallback"].error("must be false");
  }
  BpeSpec bpe;
  if (model.has("ignore_merges")) {
    DHS_ASSIGN_OR_RETURN(bpe.ignore_merges, model["ignore_merges"].boolean());
  }
  DHS_RETURN_IF_ERROR(parse_vocab(model["vocab"], bpe));
  DHS_RETURN_IF_ERROR(parse_merges(model["merges"], bpe));
  return bpe;
}

// ---- added tokens -----------------------------------------------------------------------------

absl::StatusOr<AddedToken> parse_added_token(const Node& node) {
  DHS_RETURN_IF_ERROR(node.expect_object(
      {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedToken token;
  DHS_ASSIGN_OR_RETURN(token.id, node["id"].token_id());
  DHS_ASSIGN_OR_RETURN(token.content, node["content"].string());
  DHS_ASSIGN_OR_RETURN(token.special, node["special"].boolean());
  DHS_ASSIGN_OR_RETURN(token.normalized, node["normalized"].boolean());
  DHS_ASSIGN_OR_RETURN(token.single_word, node["single_word"].boolean());
  DHS_ASSIGN_OR_RETURN(token.lstrip, node["lstrip"].boolean());
  DHS_ASSIGN_OR_RETURN(token.rstrip, node["rstrip"].boolean());
  if (token.content.empty() || token.content.size() > kMaxAddedTokenBytes) {
    return node["content"].error("has ", token.content.size(), " bytes; must have 1 to ",
                                 kMaxAddedTokenBytes);
  }
  return token;
}

absl::Status parse_added_tokens(const Node& list, TokenizerSpec& spec) {
  if (list.value().is_null()) return absl::OkStatus();
  DHS_RETURN_IF_ERROR(list.expect_array());
  for (size_t i = 0; i < list.size(); ++i) {
    DHS_ASSIGN_OR_RETURN(AddedToken token, parse_added_token(list[i]));
    spec.added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

// ---- normalizer, pre-tokenizer, decoder -------------------------------------------------------

absl::StatusOr<bool> parse_normalizer(const Node& normalizer) {
  std::vector<Node> parts;
  DHS_RETURN_IF_ERROR(flatten(normalizer, "normalizers", 0, parts));
  for (const Node& part : parts) {
    if (part.type() != "NFC") return unsupported_type(part, "NFC");
    DHS_RETURN_IF_ERROR(part.expect_object({"type"}));
  }
  return !parts.empty();
}

absl::StatusOr<SplitBehavior> parse_behavior(const Node& node) {
  DHS_ASSIGN_OR_RETURN(const std::string name, node.string());
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return node.error("'", name, "' is not supported; supported: Isolated, Removed, ",
                    "MergedWithPrevious, MergedWithNext, Contiguous");
}

absl::StatusOr<SplitStep> parse_split(const Node& node) {
  DHS_RETURN_IF_ERROR(node.expect_object({"type", "pattern", "behavior", "invert"}));
  const Node pattern = node["pattern"];
  DHS_RETURN_IF_ERROR(pattern.expect_object({"Regex", "String"}));
  if (pattern.size() != 1) return pattern.error("must have either Regex or String");
  SplitStep step;
  step.kind = pattern.has("Regex") ? SplitStep::Kind::kRegex : SplitStep::Kind::kLiteral;
  const Node text = pattern[pattern.has("Regex") ? "Regex" : "String"];
  step.json_path = text.path();
  DHS_ASSIGN_OR_RETURN(step.pattern, text.string());
  if (step.pattern.empty() || step.pattern.size() > kMaxPatternBytes) {
    return text.error("has ", step.pattern.size(), " bytes; must have 1 to ", kMaxPatternBytes);
  }
  DHS_ASSIGN_OR_RETURN(step.behavior, parse_behavior(node["behavior"]));
  DHS_ASSIGN_OR_RETURN(step.invert, node["invert"].boolean());
  return step;
}

absl::StatusOr<SplitStep> parse_digits(const Node& node) {
  DHS_RETURN_IF_ERROR(node.expect_object({"type", "individual_digits"}));
  DHS_ASSIGN_OR_RETURN(const bool individual, node["individual_digits"].boolean());
  return SplitStep{.pattern = "\\p{N}",
                   .behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                   .json_path = node.path()};
}

absl::StatusOr<PreTokenizerSpec> parse_pre_tokenizer(const Node& pre_tokenizer) {
  constexpr std::string_view kSupported = "Sequence, Split, Digits, ByteLevel";
  std::vector<Node> parts;
  DHS_RETURN_IF_ERROR(flatten(pre_tokenizer, "pretokenizers", 0, parts));
  if (parts.empty() || parts.back().type() != "ByteLevel") {
    return pre_tokenizer.error("must be ByteLevel or a Sequence that ends with it");
  }
  const Node byte_level = parts.back();
  parts.pop_back();
  PreTokenizerSpec spec;
  for (const Node& part : parts) {
    const std::string type = part.type();
    if (type == "ByteLevel") return part.error("ByteLevel must be the last and only one");
    if (type != "Split" && type != "Digits") return unsupported_type(part, kSupported);
    DHS_ASSIGN_OR_RETURN(SplitStep step, type == "Split" ? parse_split(part) : parse_digits(part));
    spec.steps.push_back(std::move(step));
  }
  DHS_RETURN_IF_ERROR(
      byte_level.expect_object({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  DHS_ASSIGN_OR_RETURN(spec.add_prefix_space, byte_level["add_prefix_space"].boolean());
  spec.split_words = true;
  if (byte_level.has("use_regex")) {
    DHS_ASSIGN_OR_RETURN(spec.split_words, byte_level["use_regex"].boolean());
  }
  return spec;
}

// The decoder must be ByteLevel. Fuse after it joins what is one string already.
absl::Status check_decoder(const Node& decoder) {
  std::vector<Node> parts;
  DHS_RETURN_IF_ERROR(flatten(decoder, "decoders", 0, parts));
  if (parts.empty() || parts.front().type() != "ByteLevel") {
    return decoder.error("must be ByteLevel or a Sequence that begins with it");
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].type() != "Fuse") return unsupported_type(parts[i], "Fuse after ByteLevel");
  }
  return absl::OkStatus();
}

// ---- post-processor ---------------------------------------------------------------------------

absl::Status append_template_token(const Node& item, const Node& known, std::vector<TokenId>& out) {
  DHS_ASSIGN_OR_RETURN(const std::string name, item["id"].string());
  const Node entry = known[name.c_str()];
  const Node ids = entry["ids"];
  if (!ids.value().is_array()) return item["id"].error("'", name, "' is not in special_tokens");
  constexpr size_t kMaxIds = 64;
  if (ids.size() > kMaxIds) return ids.error("more than ", kMaxIds, " ids");
  for (size_t i = 0; i < ids.size(); ++i) {
    DHS_ASSIGN_OR_RETURN(const TokenId id, ids[i].token_id());
    out.push_back(id);
  }
  return absl::OkStatus();
}

// Only "single" matters: there is one text. It reads: special tokens, the text, special tokens.
absl::Status parse_template(const Node& node, TokenizerSpec& spec) {
  DHS_RETURN_IF_ERROR(node.expect_object({"type", "single", "pair", "special_tokens"}));
  const Node single = node["single"];
  DHS_RETURN_IF_ERROR(single.expect_array());
  constexpr size_t kMaxItems = 64;
  if (single.size() > kMaxItems) return single.error("more than ", kMaxItems, " items");
  size_t num_texts = 0;
  for (size_t i = 0; i < single.size(); ++i) {
    const Node item = single[i];
    DHS_RETURN_IF_ERROR(item.expect_object({"SpecialToken", "Sequence"}));
    if (item.has("Sequence")) {
      if (item["Sequence"]["id"].value() != "A") return item.error("must be Sequence A");
      ++num_texts;
      continue;
    }
    DHS_RETURN_IF_ERROR(
        append_template_token(item["SpecialToken"], node["special_tokens"],
                              num_texts == 0 ? spec.prefix_tokens : spec.suffix_tokens));
  }
  if (num_texts != 1) return single.error("has Sequence A ", num_texts, " times; must be once");
  return absl::OkStatus();
}

absl::Status parse_post_processor(const Node& post_processor, TokenizerSpec& spec) {
  std::vector<Node> parts;
  DHS_RETURN_IF_ERROR(flatten(post_processor, "processors", 0, parts));
  size_t num_templates = 0;
  for (const Node& part : parts) {
    const std::string type = part.type();
    if (type == "ByteLevel") continue;  // changes offsets only
    if (type != "TemplateProcessing") {
      return unsupported_type(part, "Sequence, ByteLevel, TemplateProcessing");
    }
    if (++num_templates > 1) return part.error("a second TemplateProcessing");
    DHS_RETURN_IF_ERROR(parse_template(part, spec));
  }
  return absl::OkStatus();
}

// ---- documents --------------------------------------------------------------------------------

absl::StatusOr<json> parse_document(std::string_view text, std::string_view file) {
  if (text.size() > kMaxTokenizerFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        to_absl(file), ": ", text.size(), " bytes; the limit is ", kMaxTokenizerFileBytes));
  }
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(to_absl(file), ": not JSON: ", e.what()));
  }
}

// "<s>" or {"content": "<s>", ...}.
std::optional<std::string> token_of_config(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
    return (*it)["content"].get<std::string>();
  }
  return std::nullopt;
}

// add_bos_token and add_eos_token, where the template does not do the same already.
absl::Status apply_config(const json& config, TokenizerSpec& spec) {
  const auto wanted = [&](const char* flag, const char* key) -> absl::StatusOr<TokenId> {
    const std::optional<std::string> content = token_of_config(config, key);
    const auto it =
        std::find_if(spec.added_tokens.begin(), spec.added_tokens.end(),
                     [&](const AddedToken& token) { return content && token.content == *content; });
    if (it != spec.added_tokens.end()) return it->id;
    return absl::InvalidArgumentError(absl::StrCat("tokenizer_config.json: ", flag, " is true but ",
                                                   key, " ('", content.value_or(""),
                                                   "') is not an added token of tokenizer.json"));
  };
  const auto is_set = [&](const char* flag) {
    return config.is_object() && config.contains(flag) && config[flag] == true;
  };
  if (is_set("add_bos_token")) {
    DHS_ASSIGN_OR_RETURN(const TokenId bos, wanted("add_bos_token", "bos_token"));
    auto& prefix = spec.prefix_tokens;
    if (prefix.empty() || prefix.front() != bos) prefix.insert(prefix.begin(), bos);
  }
  if (is_set("add_eos_token")) {
    DHS_ASSIGN_OR_RETURN(const TokenId eos, wanted("add_eos_token", "eos_token"));
    auto& suffix = spec.suffix_tokens;
    if (suffix.empty() || suffix.back() != eos) suffix.push_back(eos);
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerSpec> parse_root(const Node& root, const json& config) {
  DHS_RETURN_IF_ERROR(
      root.expect_object({"version", "truncation", "padding", "added_tokens", "normalizer",
                          "pre_tokenizer", "post_processor", "decoder", "model"}));
  if (root["version"].value() != "1.0") return root["version"].error("must be \"1.0\"");
  for (const char* key : {"truncation", "padding"}) {
    if (root.has_non_null(key)) return root[key].error("must be null");
  }
  TokenizerSpec spec;
  DHS_ASSIGN_OR_RETURN(spec.bpe, parse_model(root["model"]));
  DHS_RETURN_IF_ERROR(parse_added_tokens(root["added_tokens"], spec));
  DHS_ASSIGN_OR_RETURN(spec.normalize_nfc, parse_normalizer(root["normalizer"]));
  DHS_ASSIGN_OR_RETURN(spec.pre_tokenizer, parse_pre_tokenizer(root["pre_tokenizer"]));
  DHS_RETURN_IF_ERROR(check_decoder(root["decoder"]));
  DHS_RETURN_IF_ERROR(parse_post_processor(root["post_processor"], spec));
  DHS_RETURN_IF_ERROR(apply_config(config, spec));
  return spec;
}

}  // namespace

absl::StatusOr<TokenizerSpec> parse_tokenizer_json(std::string_view tokenizer_json,
                                                   std::string_view config_json) {
  DHS_ASSIGN_OR_RETURN(const json document, parse_document(tokenizer_json, "tokenizer.json"));
  json config;
  if (!config_json.empty()) {
    DHS_ASSIGN_OR_RETURN(config, parse_document(config_json, "tokenizer_config.json"));
  }
  // The accessors above check types first; should one slip through, it is still the file's fault.
  try {
    return parse_root(Node(document, ""), config);
  } catch (const json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", e.what()));
  }
}

}  // namespace dhs
