#include "model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dhisparse/base.h"
#include "model/json_value.h"

namespace dhs {
namespace {

constexpr int64_t kHeaderSizeBytes = 8;
constexpr char kMetadata[] = "__metadata__";

struct StoredDType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;  // nullopt: the format has it, we do not decode it
};

constexpr StoredDType kStoredDTypes[] = {
    {"F32", 32, DType::kF32},     {"BF16", 16, DType::kBf16}, {"F8_E4M3", 8, DType::kF8E4m3},
    {"I32", 32, DType::kI32},     {"I64", 64, DType::kI64},   {"U8", 8, DType::kU8},
    {"F16", 16, std::nullopt},    {"F64", 64, std::nullopt},  {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"F4", 4, std::nullopt},    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"BOOL", 8, std::nullopt},  {"I8", 8, std::nullopt},
    {"I16", 16, std::nullopt},    {"U16", 16, std::nullopt},  {"U32", 32, std::nullopt},
    {"U64", 64, std::nullopt},    {"C64", 64, std::nullopt},
};

const StoredDType* find_dtype(std::string_view name) {
  for (const StoredDType& stored : kStoredDTypes) {
    if (stored.name == name) return &stored;
  }
  return nullptr;
}

// Joins the message parts of one rule that a file breaks.
template <class... Parts>
absl::Status malformed(const std::string& path, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts...));
}

// Read byte by byte: the format is little-endian whatever the machine.
uint64_t read_u64(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = kHeaderSizeBytes - 1; i >= 0; --i) {
    value = (value << 8) | std::to_integer<uint64_t>(bytes[i]);
  }
  return value;
}

// shape: an array of integers >= 0.
absl::Status read_shape(const JsonValue* value, std::vector<int64_t>& shape) {
  const JsonValue::Array* items = value == nullptr ? nullptr : value->array();
  if (items == nullptr) return absl::InvalidArgumentError("shape is missing or no array");
  for (const JsonValue& item : *items) {
    const int64_t* size = item.integer();
    if (size == nullptr || *size < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", json_excerpt(*value), ": sizes must be integers >= 0"));
    }
    shape.push_back(*size);
  }
  return absl::OkStatus();
}

// data_offsets: [begin, end) with 0 <= begin <= end <= data_bytes.
absl::Status read_offsets(const JsonValue* value, int64_t data_bytes, int64_t& begin,
                          int64_t& end) {
  const JsonValue::Array* items = value == nullptr ? nullptr : value->array();
  if (items == nullptr || items->size() != 2 || (*items)[0].integer() == nullptr ||
      (*items)[1].integer() == nullptr) {
    return absl::InvalidArgumentError("data_offsets is missing or not [begin, end]");
  }
  begin = *(*items)[0].integer();
  end = *(*items)[1].integer();
  if (begin < 0 || begin > end) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets [", begin, ", ", end, "): needs 0 <= begin <= end"));
  }
  if (end > data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_offsets [", begin, ", ", end, ") go beyond the ", data_bytes,
                     " bytes of data; the file is truncated or damaged"));
  }
  return absl::OkStatus();
}

absl::Status check_size(const std::string& dtype_name, const std::vector<int64_t>& shape,
                        int64_t stored_bytes) {
  const StoredDType* dtype = find_dtype(dtype_name);
  if (dtype == nullptr) return absl::OkStatus();
  int64_t bits = dtype->bits;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape of ", shape.size(), " axes overflows a size of 2^63 - 1 bits"));
    }
  }
  if (bits % 8 != 0 || bits / 8 != stored_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("dtype and shape need ", bits / 8,
                                                   " bytes, data_offsets give ", stored_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsFile::Mapping> SafetensorsFile::Mapping::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must fail below, not wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
  }
  struct stat info = {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(file);
    return malformed(path, "not a regular file");
  }
  if (info.st_size < kHeaderSizeBytes) {
    ::close(file);
    return malformed(path, "has ", info.st_size, " bytes, fewer than the ", kHeaderSizeBytes,
                     " of a safetensors header size");
  }
  void* data = ::mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  const int mmap_error = errno;
  ::close(file);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": cannot map ", info.st_size, " bytes: ", std::strerror(mmap_error),
                     "; raise the address space limit (ulimit -v)"));
  }
  return Mapping(static_cast<const std::byte*>(data), info.st_size);
}

SafetensorsFile::Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  DHS_ASSIGN_OR_RETURN(Mapping mapping, Mapping::open(path));
  const uint64_t header_bytes = read_u64(mapping.data());
  if (header_bytes > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes)) {
    return malformed(path, "header of ", header_bytes, " bytes, the limit is ",
                     kMaxSafetensorsHeaderBytes, "; not a safetensors file");
  }
  const int64_t bytes_left = mapping.bytes() - kHeaderSizeBytes;
  if (static_cast<int64_t>(header_bytes) > bytes_left) {
    return malformed(path, "header of ", header_bytes, " bytes, but only ", bytes_left,
                     " follow; the file is truncated");
  }
  SafetensorsFile file(path, std::move(mapping));
  file.data_offset_ = kHeaderSizeBytes + static_cast<int64_t>(header_bytes);
  const auto* header = reinterpret_cast<const char*>(file.mapping_.data() + kHeaderSizeBytes);
  DHS_RETURN_IF_ERROR(file.parse_header({header, header_bytes}));
  DHS_RETURN_IF_ERROR(file.check_tiling());
  return file;
}

absl::Status SafetensorsFile::parse_header(std::string_view header) {
  absl::StatusOr<JsonValue> parsed = parse_json(header);
  if (!parsed.ok()) return malformed(path_, "header: ", parsed.status().message());
  const JsonValue::Object* members = parsed->object();
  if (members == nullptr) {
    return malformed(path_, "header is ", json_kind_name(*parsed), ", not an object");
  }
  for (const JsonMember& member : *members) {
    if (member.key == kMetadata) {
      DHS_RETURN_IF_ERROR(read_metadata(member.value));
    } else {
      DHS_RETURN_IF_ERROR(read_tensor(member));
    }
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return absl::OkStatus();
}

absl::Status SafetensorsFile::read_metadata(const JsonValue& value) {
  const JsonValue::Object* members = value.object();
  if (members == nullptr) {
    return malformed(path_, kMetadata, " is ", json_kind_name(value), ", not an object");
  }
  for (const JsonMember& member : *members) {
    const std::string* text = member.value.string();
    if (text == nullptr) {
      return malformed(path_, kMetadata, ": \"", member.key, "\" is ", json_kind_name(member.value),
                       ", not a string");
    }
    metadata_.emplace_back(member.key, *text);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::read_tensor(const JsonMember& member) {
  Tensor tensor;
  tensor.name = member.key;
  const auto malformed_tensor = [&](absl::string_view why) {
    return malformed(path_, "tensor \"", member.key, "\": ", why);
  };
  if (member.value.object() == nullptr) {
    return malformed_tensor(absl::StrCat("is ", json_kind_name(member.value), ", not an object"));
  }
  for (const JsonMember& field : *member.value.object()) {
    if (field.key != "dtype" && field.key != "shape" && field.key != "data_offsets") {
      return malformed_tensor(absl::StrCat("unknown field \"", field.key, "\""));
    }
  }
  const JsonValue* dtype = member.value.find("dtype");
  if (dtype == nullptr || dtype->string() == nullptr) {
    return malformed_tensor("dtype is missing or no string");
  }
  tensor.dtype_name = *dtype->string();
  const int64_t data_bytes = mapping_.bytes() - data_offset_;
  absl::Status status = read_shape(member.value.find("shape"), tensor.shape);
  if (status.ok()) {
    status = read_offsets(member.value.find("data_offsets"), data_bytes, tensor.begin, tensor.end);
  }
  if (status.ok()) {
    status = check_size(tensor.dtype_name, tensor.shape, tensor.end - tensor.begin);
  }
  if (!status.ok()) return malformed_tensor(status.message());
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status SafetensorsFile::check_tiling() const {
  std::vector<const Tensor*> by_offset;
  by_offset.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const Tensor* a, const Tensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t covered = 0;
  for (const Tensor* tensor : by_offset) {
    if (tensor->begin < covered) {
      return malformed(path_, "tensor \"", tensor->name, "\" begins at ", tensor->begin,
                       " and overlaps another one that ends at ", covered);
    }
    if (tensor->begin > covered) {
      return malformed(path_, "tensor \"", tensor->name, "\" begins at ", tensor->begin,
                       ", which leaves a hole after ", covered);
    }
    covered = tensor->end;
  }
  const int64_t data_bytes = mapping_.bytes() - data_offset_;
  if (covered != data_bytes) {
    return malformed(path_, "the tensors cover ", covered, " of ", data_bytes, " bytes of data");
  }
  return absl::OkStatus();
}

std::vector<std::string_view> SafetensorsFile::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) names.push_back(tensor.name);
  return names;
}

std::optional<TensorBytes> SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Tensor& tensor, std::string_view key) { return tensor.name < key; });
  if (found == tensors_.end() || found->name != name) return std::nullopt;
  const StoredDType* stored = find_dtype(found->dtype_name);
  TensorBytes tensor;
  tensor.dtype = stored == nullptr ? std::nullopt : stored->dtype;
  tensor.dtype_name = found->dtype_name;
  tensor.shape = found->shape;
  tensor.data = mapping_.data() + data_offset_ + found->begin;
  tensor.bytes = found->end - found->begin;
  return tensor;
}

std::optional<std::string_view> SafetensorsFile::metadata(std::string_view key) const {
  for (const auto& [name, text] : metadata_) {
    if (name == key) return text;
  }
  return std::nullopt;
}

}  // namespace dhs
