#include "trace/trace_codec.h"

#include <limits>
#include <optional>

#include "trace/crc32.h"

namespace dhs::trace {
namespace {

constexpr std::string_view kMagic = "DHSTRACE";
constexpr uint32_t kVersion = 1;
constexpr size_t kMaxVarintBytes = 10;
constexpr int kNumHeadFields = 5;  // request, step, group, query, count
constexpr uint32_t kMaxGroups = 1u << 16;
constexpr uint32_t kMaxTopK = 1u << 20;

void append_u32(uint32_t value, std::string& bytes) {
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

// Seven bits a byte, the lowest first; the highest bit says that more follow.
void append_varint(uint64_t value, std::string& bytes) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
}

// Takes varints off the front of a payload.
struct Payload {
  std::string_view bytes;

  std::optional<uint64_t> take() {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size() && i < kMaxVarintBytes; ++i) {
      const auto byte = static_cast<uint8_t>(bytes[i]);
      if (i == kMaxVarintBytes - 1 && byte > 1) return std::nullopt;  // beyond 64 bits
      value |= uint64_t{byte & 0x7fu} << (7 * i);
      if (byte >= 0x80) continue;
      bytes.remove_prefix(i + 1);
      return value;
    }
    return std::nullopt;
  }
};

absl::Status damaged(const std::string& what) { return absl::DataLossError(what); }

absl::Status check_shape(TraceShape shape) {
  if (shape.num_groups < 1 || shape.num_groups > static_cast<int64_t>(kMaxGroups)) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_groups is ", shape.num_groups, ", it must be in [1, ", kMaxGroups, "]"));
  }
  if (shape.top_k < 1 || shape.top_k > static_cast<int64_t>(kMaxTopK)) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k is ", shape.top_k, ", it must be in [1, ", kMaxTopK, "]"));
  }
  return absl::OkStatus();
}

absl::Status decode_head(Payload& payload, TraceShape shape, TracedSelection& selection,
                         uint64_t& count) {
  uint64_t fields[kNumHeadFields];
  for (uint64_t& field : fields) {
    const std::optional<uint64_t> value = payload.take();
    if (!value.has_value()) return damaged("its head ends early or holds a number beyond 64 bits");
    field = *value;
  }
  const auto [request, step, group, query, num_positions] = fields;
  if (group >= static_cast<uint64_t>(shape.num_groups)) {
    return damaged(absl::StrCat("group is ", group, ", the file has ", shape.num_groups));
  }
  if (query > static_cast<uint64_t>(std::numeric_limits<Position>::max())) {
    return damaged(absl::StrCat("query is ", query, ", more than a position can be"));
  }
  if (num_positions > static_cast<uint64_t>(shape.top_k)) {
    return damaged(absl::StrCat("it has ", num_positions, " positions, top_k is ", shape.top_k));
  }
  selection.request = RequestId(request);
  selection.step = step;
  selection.group = static_cast<int32_t>(group);
  selection.query = static_cast<Position>(query);
  count = num_positions;
  return absl::OkStatus();
}

absl::Status decode_positions(Payload& payload, uint64_t count, TracedSelection& selection) {
  selection.positions.clear();
  int64_t next = 0;  // the smallest position that may follow
  for (uint64_t i = 0; i < count; ++i) {
    const std::optional<uint64_t> gap = payload.take();
    if (!gap.has_value()) {
      return damaged(absl::StrCat("its payload ends within position ", i, " of ", count));
    }
    if (next > selection.query || *gap > static_cast<uint64_t>(selection.query - next)) {
      return damaged(
          absl::StrCat("position ", i, " lies behind the query row's, ", selection.query));
    }
    const int64_t position = next + static_cast<int64_t>(*gap);
    selection.positions.push_back(static_cast<Position>(position));
    next = position + 1;
  }
  if (!payload.bytes.empty()) {
    return damaged(absl::StrCat(payload.bytes.size(), " bytes follow its last position"));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t read_u32(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

absl::Status check_selection(const TracedSelection& selection, TraceShape shape) {
  if (selection.group < 0 || selection.group >= shape.num_groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("group is ", selection.group, ", the trace has ", shape.num_groups));
  }
  if (selection.query < 0) {
    return absl::InvalidArgumentError(absl::StrCat("query is ", selection.query));
  }
  if (std::ssize(selection.positions) > shape.top_k) {
    return absl::InvalidArgumentError(
        absl::StrCat(selection.positions.size(), " positions, the trace's top_k is ", shape.top_k));
  }
  Position previous = -1;
  for (const Position position : selection.positions) {
    if (position <= previous || position > selection.query) {
      return absl::InvalidArgumentError(
          absl::StrCat("position ", position, " after ", previous,
                       "; positions rise and end at the query row's, ", selection.query));
    }
    previous = position;
  }
  return absl::OkStatus();
}

std::string encode_header(TraceShape shape) {
  std::string bytes(kMagic);
  append_u32(kVersion, bytes);
  append_u32(static_cast<uint32_t>(shape.num_groups), bytes);
  append_u32(static_cast<uint32_t>(shape.top_k), bytes);
  append_u32(crc32(bytes), bytes);
  return bytes;
}

absl::StatusOr<TraceShape> decode_header(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) return damaged("it does not begin with DHSTRACE");
  const uint32_t version = read_u32(bytes.substr(8));
  if (version != kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("it has format version ", version, ", this program reads ", kVersion));
  }
  const std::string_view covered = bytes.substr(0, kHeaderBytes - kChecksumBytes);
  if (read_u32(bytes.substr(covered.size())) != crc32(covered)) {
    return damaged("its header does not fit its checksum");
  }
  const uint32_t num_groups = read_u32(bytes.substr(12));
  const uint32_t top_k = read_u32(bytes.substr(16));
  const TraceShape shape = {static_cast<int32_t>(num_groups), static_cast<int32_t>(top_k)};
  const absl::Status status = check_shape(shape);
  if (!status.ok()) return damaged(std::string(status.message()));
  return shape;
}

void encode_frame(const TracedSelection& selection, std::string& frame) {
  const size_t begin = frame.size();
  append_u32(0, frame);  // the length, once known
  append_varint(selection.request.value, frame);
  append_varint(selection.step, frame);
  append_varint(static_cast<uint64_t>(selection.group), frame);
  append_varint(static_cast<uint64_t>(selection.query), frame);
  append_varint(selection.positions.size(), frame);
  Position next = 0;
  for (const Position position : selection.positions) {
    append_varint(static_cast<uint64_t>(position - next), frame);
    next = position + 1;
  }
  std::string length;
  append_u32(static_cast<uint32_t>(frame.size() - begin - kLengthBytes), length);
  frame.replace(begin, kLengthBytes, length);
  append_u32(crc32(std::string_view(frame).substr(begin)), frame);
}

size_t max_payload_bytes(TraceShape shape) {
  return kMaxVarintBytes * (kNumHeadFields + static_cast<size_t>(shape.top_k));
}

absl::Status decode_frame(std::string_view frame, TraceShape shape, TracedSelection& selection) {
  const std::string_view covered = frame.substr(0, frame.size() - kChecksumBytes);
  if (read_u32(frame.substr(covered.size())) != crc32(covered)) {
    return damaged("it does not fit its checksum");
  }
  Payload payload = {covered.substr(kLengthBytes)};
  uint64_t count = 0;
  DHS_RETURN_IF_ERROR(decode_head(payload, shape, selection, count));
  return decode_positions(payload, count, selection);
}

}  // namespace dhs::trace
