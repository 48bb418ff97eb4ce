// The part of absl's status that the core uses, for machines without absl: same names, same
// meaning.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace absl {

using string_view = std::string_view;

enum class StatusCode : int {
  kOk = 0,
  kUnknown = 2,
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, string_view message) : code_(code), message_(message) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  string_view message() const { return message_; }
  std::string ToString() const {
    return ok() ? "OK" : "code " + std::to_string(static_cast<int>(code_)) + ": " + message_;
  }
  friend bool operator==(const Status&, const Status&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Status& status) {
    return out << status.ToString();
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return {}; }
inline Status AbortedError(string_view why) { return {StatusCode::kAborted, why}; }
inline Status FailedPreconditionError(string_view why) {
  return {StatusCode::kFailedPrecondition, why};
}
inline Status InternalError(string_view why) { return {StatusCode::kInternal, why}; }
inline Status InvalidArgumentError(string_view why) { return {StatusCode::kInvalidArgument, why}; }
inline Status NotFoundError(string_view why) { return {StatusCode::kNotFound, why}; }
inline Status ResourceExhaustedError(string_view why) {
  return {StatusCode::kResourceExhausted, why};
}
inline Status UnimplementedError(string_view why) { return {StatusCode::kUnimplemented, why}; }

}  // namespace absl
