// base: what every other module stands on. Status macros, checks, strong ids, log.
//
// Errors. A function that can fail for a reason outside this program returns absl::Status or
// absl::StatusOr; the message names the value, the limit and the remedy. DHS_CHECK is for our own
// bugs only: it stops the process, in release builds too, because a wrong token is worse than none.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dhs {

// ---- Checks and status ------------------------------------------------------------------------

// Prints "file:line: check failed: expression: why" and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& why);

// DHS_CHECK(condition, reason parts...): the parts are joined only when the check fails.
#define DHS_CHECK(condition, ...) \
  (static_cast<bool>(condition)   \
       ? void()                   \
       : ::dhs::check_failed(__FILE__, __LINE__, #condition, ::absl::StrCat(__VA_ARGS__)))

#define DHS_RETURN_IF_ERROR(expression)        \
  do {                                         \
    ::absl::Status dhs_status_ = (expression); \
    if (!dhs_status_.ok()) return dhs_status_; \
  } while (false)

#define DHS_CONCAT_INNER(a, b) a##b
#define DHS_CONCAT(a, b) DHS_CONCAT_INNER(a, b)
#define DHS_ASSIGN_OR_RETURN_IMPL(result, lhs, expression) \
  auto result = (expression);                              \
  if (!result.ok()) return result.status();                \
  lhs = *std::move(result)

// DHS_ASSIGN_OR_RETURN(auto x, f()): x = value of f(), or return f()'s error.
#define DHS_ASSIGN_OR_RETURN(lhs, expression) \
  DHS_ASSIGN_OR_RETURN_IMPL(DHS_CONCAT(dhs_result_, __LINE__), lhs, expression)

// Debian's absl carries its own string_view; these two cross the border.
inline absl::string_view to_absl(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view to_std(absl::string_view s) { return {s.data(), s.size()}; }

// ---- Strong ids -------------------------------------------------------------------------------

// An integer that cannot be mixed up with another kind of integer. `value` is public on purpose:
// it is the way out, and greppable.
template <class Tag, class T>
struct StrongId {
  T value{};
  constexpr StrongId() = default;
  constexpr explicit StrongId(T v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  template <class H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value);
  }
};

using TokenId = int32_t;   // an index into the vocabulary; crosses the wire and the kernels as is
using Position = int32_t;  // 0-based index of a token in its sequence
using HostRow = int64_t;   // host_block * kHostBlockTokens + offset: names a token's records

using RequestId = StrongId<struct RequestIdTag, uint64_t>;
using HostBlockId = StrongId<struct HostBlockIdTag, int32_t>;
using ChunkId = StrongId<struct ChunkIdTag, int32_t>;
using StepId = StrongId<struct StepIdTag, uint64_t>;

// Tokens in one host block: the unit of prefix sharing and of index key pages.
inline constexpr int kHostBlockTokens = 64;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

// ---- Log --------------------------------------------------------------------------------------

enum class LogLevel { kDebug, kInfo, kWarning, kError };
// "debug", "info", "warning", "error", as log.level says it; kInfo for any other word.
LogLevel log_level_named(std::string_view name);

// Thread-safe; one line per call, to stderr. `log_at` is the only sink: spdlog stays in log.cc.
void set_log_level(LogLevel level);
void log_at(LogLevel level, const std::string& message);

template <class... Parts>
void log_info(const Parts&... parts) {
  log_at(LogLevel::kInfo, absl::StrCat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log_at(LogLevel::kWarning, absl::StrCat(parts...));
}
template <class... Parts>
void log_error(const Parts&... parts) {
  log_at(LogLevel::kError, absl::StrCat(parts...));
}

}  // namespace dhs
