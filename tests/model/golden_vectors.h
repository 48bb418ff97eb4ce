// Reads tests/golden/model/vectors/<case>.safetensors (README.md there gives names and shapes).
#pragma once

#include <string>
#include <vector>

#include "model/safetensors.h"

namespace dhs {

std::string golden_model_dir(const std::string& name);

class GoldenVectors {
 public:
  explicit GoldenVectors(const std::string& name);

  bool has(const std::string& name) const { return file_.find(name).has_value(); }
  std::vector<float> floats(const std::string& name) const;
  std::vector<int32_t> ints(const std::string& name) const;

 private:
  SafetensorsFile file_;
};

// max |a - b| / rms(b): the error relative to the tensor's own scale.
double relative_error(const std::vector<float>& actual, const std::vector<float>& expected);

}  // namespace dhs
