#include "golden_vectors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "dhisparse/base.h"

namespace dhs {
namespace {

const std::string kRoot = std::string(DHS_SOURCE_DIR) + "/tests/golden/model/";

SafetensorsFile open_or_die(const std::string& path) {
  auto file = SafetensorsFile::open(path);
  DHS_CHECK(file.ok(), file.status().ToString());
  return *std::move(file);
}

template <class T>
std::vector<T> read(const SafetensorsFile& file, const std::string& name) {
  const auto tensor = file.find(name);
  DHS_CHECK(tensor.has_value(), "no golden tensor ", name);
  std::vector<T> values(tensor->bytes / sizeof(T));
  std::memcpy(values.data(), tensor->data, tensor->bytes);
  return values;
}

}  // namespace

std::string golden_model_dir(const std::string& name) { return kRoot + name; }

GoldenVectors::GoldenVectors(const std::string& name)
    : file_(open_or_die(kRoot + "vectors/" + name + ".safetensors")) {}

std::vector<float> GoldenVectors::floats(const std::string& name) const {
  return read<float>(file_, name);
}

std::vector<int32_t> GoldenVectors::ints(const std::string& name) const {
  return read<int32_t>(file_, name);
}

double relative_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  if (actual.size() != expected.size() || expected.empty()) return INFINITY;
  double sum = 0;
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    sum += double{expected[i]} * expected[i];
    const double difference = std::fabs(double{actual[i]} - expected[i]);
    if (!(difference <= worst)) worst = difference;  // a NaN wins
  }
  return worst / std::sqrt(sum / static_cast<double>(expected.size()));
}

}  // namespace dhs
