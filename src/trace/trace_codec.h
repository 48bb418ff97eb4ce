// The bytes of a trace file (docs/FORMATS.md), without the file.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "dhisparse/trace_file.h"

namespace dhs::trace {

inline constexpr size_t kHeaderBytes = 24;
inline constexpr size_t kChecksumBytes = 4;
inline constexpr size_t kLengthBytes = 4;

uint32_t read_u32(std::string_view bytes);  // the first four

// What a selection must keep to; the message names the field, its value and the limit.
absl::Status check_selection(const TracedSelection& selection, TraceShape shape);

std::string encode_header(TraceShape shape);
// The kHeaderBytes bytes of a header. The message says what is wrong, not where.
absl::StatusOr<TraceShape> decode_header(std::string_view bytes);

// Appends length, payload and checksum to `frame`. The selection passes check_selection.
void encode_frame(const TracedSelection& selection, std::string& frame);
// No longer payload comes from a selection of this shape.
size_t max_payload_bytes(TraceShape shape);
// A whole frame. The message says what is wrong, not where.
absl::Status decode_frame(std::string_view frame, TraceShape shape, TracedSelection& selection);

}  // namespace dhs::trace
