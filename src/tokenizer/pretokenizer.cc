#include "tokenizer/pretokenizer.h"

#include "tokenizer/utf8.h"

namespace dhs {
namespace {

constexpr std::string_view kWordPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A part of the text: a match of the pattern or what lies between two matches.
struct Part {
  ByteRange range;
  bool is_match = false;
};

bool joins(SplitBehavior behavior, bool previous_is_match, bool is_match) {
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return !previous_is_match && is_match;
    case SplitBehavior::kMergedWithNext:
      return previous_is_match && !is_match;
    case SplitBehavior::kContiguous:
      return previous_is_match == is_match;
    case SplitBehavior::kIsolated:
    case SplitBehavior::kRemoved:
      return false;
  }
  return false;
}

}  // namespace

// One text on its way through the steps: each piece of a step goes through all later steps before
// the next piece of it is looked for.
class PreTokenizer::Walk {
 public:
  Walk(const PreTokenizer& owner, RegexScratch& scratch, PieceSink& sink)
      : owner_(owner), scratch_(scratch), sink_(sink) {}

  absl::Status run(size_t step_idx, std::string_view piece);

 private:
  friend class StepSplit;
  absl::Status run_prefixed(size_t step_idx, std::string_view piece);

  const PreTokenizer& owner_;
  RegexScratch& scratch_;
  PieceSink& sink_;
};

// One step over one piece.
class PreTokenizer::StepSplit {
 public:
  StepSplit(Walk& walk, size_t step_idx, std::string_view text)
      : walk_(walk), step_(walk.owner_.steps_[step_idx]), step_idx_(step_idx), text_(text) {}

  absl::Status run();

 private:
  absl::StatusOr<std::optional<ByteRange>> find(size_t from) const;
  absl::Status add(Part part);
  absl::Status give_out(const Part& part);

  Walk& walk_;
  const Step& step_;
  const size_t step_idx_;
  const std::string_view text_;
  std::optional<Part> pending_;  // the next part may join it
};

absl::Status PreTokenizer::StepSplit::run() {
  size_t from = 0;
  size_t covered = 0;
  std::optional<size_t> last_end;
  while (from <= text_.size()) {
    DHS_ASSIGN_OR_RETURN(const std::optional<ByteRange> match, find(from));
    if (!match) break;
    // An empty match directly after another match is not counted; look one character further.
    if (match->begin == match->end && last_end == match->end) {
      if (match->end == text_.size()) break;
      from = match->end + decode_utf8(text_, match->end).num_bytes;
      continue;
    }
    if (covered != match->begin) DHS_RETURN_IF_ERROR(add({{covered, match->begin}, false}));
    DHS_RETURN_IF_ERROR(add({*match, true}));
    from = covered = match->end;
    last_end = match->end;
  }
  if (covered != text_.size()) DHS_RETURN_IF_ERROR(add({{covered, text_.size()}, false}));
  return pending_ ? give_out(*pending_) : absl::OkStatus();
}

absl::StatusOr<std::optional<ByteRange>> PreTokenizer::StepSplit::find(size_t from) const {
  if (step_.regex) return step_.regex->find(text_, from, walk_.scratch_);
  const size_t begin = text_.find(step_.literal, from);
  if (begin == std::string_view::npos) return std::optional<ByteRange>();
  return std::optional<ByteRange>({begin, begin + step_.literal.size()});
}

absl::Status PreTokenizer::StepSplit::add(Part part) {
  part.is_match = part.is_match != step_.invert;
  if (pending_ && joins(step_.behavior, pending_->is_match, part.is_match)) {
    part.range.begin = pending_->range.begin;
  } else if (pending_) {
    DHS_RETURN_IF_ERROR(give_out(*pending_));
  }
  pending_ = part;
  return absl::OkStatus();
}

absl::Status PreTokenizer::StepSplit::give_out(const Part& part) {
  if (step_.behavior == SplitBehavior::kRemoved && part.is_match) return absl::OkStatus();
  const size_t num_bytes = part.range.end - part.range.begin;
  if (num_bytes == 0) return absl::OkStatus();
  return walk_.run(step_idx_ + 1, text_.substr(part.range.begin, num_bytes));
}

absl::Status PreTokenizer::Walk::run(size_t step_idx, std::string_view piece) {
  if (owner_.prefix_space_step_ == step_idx && !piece.starts_with(' ')) {
    std::string prefixed(" ");
    prefixed += piece;
    return run_prefixed(step_idx, prefixed);
  }
  return run_prefixed(step_idx, piece);
}

absl::Status PreTokenizer::Walk::run_prefixed(size_t step_idx, std::string_view piece) {
  if (step_idx == owner_.steps_.size()) return sink_.on_piece(piece);
  return StepSplit(*this, step_idx, piece).run();
}

absl::StatusOr<PreTokenizer> PreTokenizer::create(const PreTokenizerSpec& spec) {
  PreTokenizer pre_tokenizer;
  for (const SplitStep& split : spec.steps) {
    Step step{std::nullopt, split.pattern, split.behavior, split.invert};
    if (split.kind == SplitStep::Kind::kRegex) {
      absl::StatusOr<SplitRegex> regex = SplitRegex::compile(split.pattern);
      if (!regex.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(split.json_path, ": ", regex.status().message()));
      }
      step.regex = *std::move(regex);
    }
    pre_tokenizer.steps_.push_back(std::move(step));
  }
  if (spec.add_prefix_space) pre_tokenizer.prefix_space_step_ = pre_tokenizer.steps_.size();
  if (spec.split_words) {
    DHS_ASSIGN_OR_RETURN(SplitRegex words, SplitRegex::compile(kWordPattern));
    pre_tokenizer.steps_.push_back({std::move(words), "", SplitBehavior::kIsolated, false});
  }
  return pre_tokenizer;
}

absl::Status PreTokenizer::split(std::string_view text, RegexScratch& scratch,
                                 PieceSink& sink) const {
  if (text.empty()) return absl::OkStatus();
  return Walk(*this, scratch, sink).run(0, text);
}

}  // namespace dhs
