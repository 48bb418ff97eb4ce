// Configurations for tests: the committed ones, and one that is small enough to check every step.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dhisparse/sim.h"
#include "dhisparse/sim_config.h"

namespace dhs::test {

// Files of configs/sim by name, and overrides.
inline SimConfig committed(const std::vector<std::string>& names,
                           const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    paths.push_back(std::string(DHS_SOURCE_DIR "/configs/sim/") + name + ".yaml");
  }
  const auto loaded = load_sim_config(paths, overrides);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? loaded->config : SimConfig{};
}

// GLM-5.3's proportions with a top_k of 256 and a context of 12544 tokens, on GPUs whose memory is
// cut to match.
inline SimConfig small_config(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"model.top_k=256",
                                  "workload.context=12544",
                                  "workload.output_tokens=512",
                                  "workload.concurrency=32",
                                  "deployment.chunk=256KiB",
                                  "hardware.hbm=126.5GB",
                                  "residency.fixed_rows_per_request=512",
                                  "run.sampled_groups=2",
                                  "run.warmup_steps=10",
                                  "run.measured_steps=30"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return committed({"b200", "glm-5.3", "fitted"}, all);
}

}  // namespace dhs::test
