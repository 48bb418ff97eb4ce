// Messages to and from bytes. The services take raw bytes, so that a message which does not parse
// is INVALID_ARGUMENT (gRPC itself would answer UNIMPLEMENTED) and parsing runs on a worker thread.
#pragma once

#include <absl/status/status.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "dhisparse/base.h"

namespace dhs {

template <class Message>
absl::Status parse_message(const grpc::ByteBuffer& bytes, Message* message) {
  // Deserialize clears its argument; a copy of a ByteBuffer shares the bytes.
  grpc::ByteBuffer copy = bytes;
  if (grpc::SerializationTraits<Message>::Deserialize(&copy, message).ok()) {
    return absl::OkStatus();
  }
  const std::string name(Message::descriptor()->full_name());
  return absl::InvalidArgumentError(absl::StrCat(
      "request: ", bytes.Length(), " bytes that are not a ", name,
      " (cut short, or a text field that is not UTF-8); send it as proto/dhisparse/v1 says"));
}

template <class Message>
grpc::ByteBuffer serialize_message(const Message& message) {
  grpc::ByteBuffer bytes;
  bool owns = false;
  const auto status = grpc::SerializationTraits<Message>::Serialize(message, &bytes, &owns);
  DHS_CHECK(status.ok(), "a response cannot be serialized: ", status.error_message());
  return bytes;
}

}  // namespace dhs
