// safetensors: one file of tensors, mapped read-only. The header is parsed as hostile input.
//
// Format: u64 little-endian header size | JSON header | data. The header maps a tensor's name to
// {dtype, shape, data_offsets: [begin, end) from the start of the data}; "__metadata__" maps
// strings to strings. The tensors tile the data: no hole, no overlap.
//
// The file must not shrink while it is mapped: reading beyond its end is a SIGBUS.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dhisparse/tensor.h"

namespace dhs {

struct JsonMember;
struct JsonValue;

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit

// A view: valid as long as the SafetensorsFile it came from, wherever that is moved to.
struct TensorBytes {
  // nullopt: a dtype we cannot decode. Its size is checked where the format defines one; it is an
  // error only for whoever wants to use it.
  std::optional<DType> dtype;
  std::string_view dtype_name;  // as in the header
  std::span<const int64_t> shape;
  const std::byte* data = nullptr;  // may be unaligned
  int64_t bytes = 0;
};

class SafetensorsFile {
 public:
  // NOT_FOUND when the file cannot be opened, INVALID_ARGUMENT when it is malformed.
  static absl::StatusOr<SafetensorsFile> open(const std::string& path);

  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  const std::string& path() const { return path_; }
  size_t num_tensors() const { return tensors_.size(); }
  std::vector<std::string_view> names() const;  // ascending
  std::optional<TensorBytes> find(std::string_view name) const;
  std::optional<std::string_view> metadata(std::string_view key) const;

 private:
  // A read-only mapping of a whole file.
  class Mapping {
   public:
    static absl::StatusOr<Mapping> open(const std::string& path);
    Mapping(Mapping&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept {
      std::swap(data_, other.data_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Mapping();

    const std::byte* data() const { return data_; }
    int64_t bytes() const { return bytes_; }

   private:
    Mapping(const std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}

    const std::byte* data_;
    int64_t bytes_;
  };

  struct Tensor {
    std::string name;
    std::string dtype_name;
    std::vector<int64_t> shape;
    int64_t begin = 0;  // from the start of the data
    int64_t end = 0;
  };

  SafetensorsFile(std::string path, Mapping mapping)
      : path_(std::move(path)), mapping_(std::move(mapping)) {}

  absl::Status parse_header(std::string_view header);
  absl::Status read_metadata(const JsonValue& value);
  absl::Status read_tensor(const JsonMember& member);
  absl::Status check_tiling() const;

  std::string path_;
  Mapping mapping_;
  int64_t data_offset_ = 0;      // of the data in the file
  std::vector<Tensor> tensors_;  // ascending by name
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace dhs
