// Status codes are the same numbers on both sides, so statuses cross by a cast.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/support/status.h>

#include <string>

namespace dhs {

inline grpc::Status to_grpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

inline absl::Status from_grpc(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

}  // namespace dhs
