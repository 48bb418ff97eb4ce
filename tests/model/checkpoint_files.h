// Builds checkpoint files for tests, byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "dhisparse/base.h"

namespace dhs {

// An empty directory of its own, removed with what it holds.
class TempDirectory {
 public:
  TempDirectory() {
    std::string path = testing::TempDir() + "dhs_checkpoint_XXXXXX";
    if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "cannot create " << path;
    path_ = path;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  // Writes the file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    return file;
  }

 private:
  std::string path_;
};

struct BuiltTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline std::string safetensors_file(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  const uint64_t header_bytes = header.size();
  std::memcpy(file.data(), &header_bytes, sizeof(header_bytes));
  return file + header + data;
}

// The header's entry of a tensor that begins at `begin`.
inline std::string safetensors_entry(const BuiltTensor& tensor, size_t begin) {
  std::string shape;
  for (int64_t size : tensor.shape) absl::StrAppend(&shape, shape.empty() ? "" : ",", size);
  return absl::StrCat("\"", tensor.name, "\":{\"dtype\":\"", tensor.dtype, "\",\"shape\":[", shape,
                      "],\"data_offsets\":[", begin, ",", begin + tensor.bytes.size(), "]}");
}

inline std::string build_safetensors(const std::vector<BuiltTensor>& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::string data;
  for (const BuiltTensor& tensor : tensors) {
    absl::StrAppend(&header, ",", safetensors_entry(tensor, data.size()));
    data += tensor.bytes;
  }
  return safetensors_file(header + "}", data);
}

}  // namespace dhs
