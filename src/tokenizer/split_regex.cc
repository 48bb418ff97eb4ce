#include "tokenizer/split_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "tokenizer/split_pattern.h"

namespace dhs {
namespace {

// Bounds of one search. The patterns in use need a few steps per byte and a flat stack.
constexpr uint32_t kMaxMatchSteps = 50'000'000;
constexpr uint32_t kMaxHeapKib = 65536;
constexpr size_t kInitialJitStackBytes = size_t{32} << 10;
constexpr size_t kMaxJitStackBytes = size_t{4} << 20;

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR as_units(std::string_view s) {
  static constexpr char kEmpty[] = "";
  return reinterpret_cast<PCRE2_SPTR>(s.data() == nullptr ? kEmpty : s.data());
}

}  // namespace

struct RegexScratch::State {
  pcre2_match_data* match_data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* jit_stack =
      pcre2_jit_stack_create(kInitialJitStackBytes, kMaxJitStackBytes, nullptr);
};

void RegexScratch::StateDeleter::operator()(State* state) const {
  pcre2_match_data_free(state->match_data);
  pcre2_match_context_free(state->context);
  pcre2_jit_stack_free(state->jit_stack);
  delete state;
}

RegexScratch::RegexScratch() : state_(new State) {
  DHS_CHECK(state_->match_data != nullptr && state_->context != nullptr,
            "out of memory for a regex search");
  pcre2_set_match_limit(state_->context, kMaxMatchSteps);
  pcre2_set_heap_limit(state_->context, kMaxHeapKib);
  // Without a stack of its own (no JIT in this build) PCRE2 uses the thread's.
  if (state_->jit_stack != nullptr) {
    pcre2_jit_stack_assign(state_->context, nullptr, state_->jit_stack);
  }
}

struct SplitRegex::Code {
  pcre2_code* pcre = nullptr;
};

void SplitRegex::CodeDeleter::operator()(Code* code) const {
  pcre2_code_free(code->pcre);
  delete code;
}

absl::StatusOr<SplitRegex> SplitRegex::compile(std::string_view pattern) {
  DHS_ASSIGN_OR_RETURN(const std::string native, translate_split_pattern(pattern));
  return compile_checked(native);
}

SplitRegex SplitRegex::compile_native(std::string_view pattern) {
  absl::StatusOr<SplitRegex> regex = compile_checked(pattern);
  DHS_CHECK(regex.ok(), regex.status().message());
  return *std::move(regex);
}

absl::StatusOr<SplitRegex> SplitRegex::compile_checked(std::string_view native) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  DHS_CHECK(context != nullptr, "out of memory for a regex");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  SplitRegex regex;
  regex.code_.reset(new Code);
  int error = 0;
  PCRE2_SIZE offset = 0;
  regex.code_->pcre = pcre2_compile(as_units(native), native.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                    &offset, context.get());
  if (regex.code_->pcre == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("regex: ", message_of(error), " at byte ", offset, " of ", to_absl(native)));
  }
  // Where JIT is not to be had, pcre2_match interprets: slower, same result.
  pcre2_jit_compile(regex.code_->pcre, PCRE2_JIT_COMPLETE);
  return regex;
}

absl::StatusOr<std::optional<ByteRange>> SplitRegex::find(std::string_view text, size_t from,
                                                          RegexScratch& scratch) const {
  RegexScratch::State& state = *scratch.state_;
  const int rc = pcre2_match(code_->pcre, as_units(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                             state.match_data, state.context);
  if (rc == PCRE2_ERROR_NOMATCH) return std::optional<ByteRange>();
  if (rc < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text cannot be split within the limits of a search (", message_of(rc),
                     ") from byte ", from, " of a part of ", text.size(),
                     " bytes; break up its longest run of similar characters"));
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.match_data);
  return std::optional<ByteRange>({range[0], range[1]});
}

}  // namespace dhs
