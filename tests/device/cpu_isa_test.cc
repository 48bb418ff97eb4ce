#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "dhisparse/device.h"

namespace dhs {
namespace {

constexpr CpuIsa kAllIsas[] = {CpuIsa::kBase, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16};

CpuIsa best_supported() {
  CpuIsa best = CpuIsa::kBase;
  for (CpuIsa isa : kAllIsas) {
    if (cpu_supports(isa)) best = isa;
  }
  return best;
}

// The choice is made once per process, so each case needs a process of its own.
[[noreturn]] void choose_under(const char* wanted) {
  if (wanted == nullptr) {
    unsetenv("DHS_CPU_ISA");
  } else {
    setenv("DHS_CPU_ISA", wanted, 1);
  }
  std::fprintf(stderr, "chose [%s]\n", cpu_isa_name(cpu_isa()));
  std::_Exit(0);
}

class CpuIsaDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

std::string chose(CpuIsa isa) { return std::string("chose \\[") + cpu_isa_name(isa) + "\\]"; }

TEST_F(CpuIsaDeathTest, without_a_cap_the_best_supported_one_is_chosen) {
  EXPECT_EXIT(choose_under(nullptr), testing::ExitedWithCode(0), chose(best_supported()));
}

TEST_F(CpuIsaDeathTest, a_supported_cap_is_what_runs) {
  for (CpuIsa isa : kAllIsas) {
    if (!cpu_supports(isa)) continue;
    EXPECT_EXIT(choose_under(cpu_isa_name(isa)), testing::ExitedWithCode(0), chose(isa));
  }
}

TEST_F(CpuIsaDeathTest, an_unsupported_cap_warns_and_falls_back_to_the_best) {
  for (CpuIsa isa : kAllIsas) {
    if (cpu_supports(isa)) continue;
    EXPECT_EXIT(choose_under(cpu_isa_name(isa)), testing::ExitedWithCode(0),
                "is not supported here(.|\n)*" + chose(best_supported()));
  }
}

TEST_F(CpuIsaDeathTest, an_unknown_cap_warns_and_is_ignored) {
  for (const char* wanted : {"", "AVX2", "avx1024"}) {
    EXPECT_EXIT(choose_under(wanted), testing::ExitedWithCode(0),
                std::string("DHS_CPU_ISA=") + wanted + " is not one of base, avx2(.|\n)*" +
                    chose(best_supported()));
  }
}

TEST(CpuIsa, every_machine_supports_the_base_and_whatever_lies_below_what_it_supports) {
  EXPECT_TRUE(cpu_supports(CpuIsa::kBase));
  EXPECT_LE(cpu_supports(CpuIsa::kAvx512Bf16), cpu_supports(CpuIsa::kAvx512));
  EXPECT_LE(cpu_supports(CpuIsa::kAvx512), cpu_supports(CpuIsa::kAvx2));
  EXPECT_TRUE(cpu_supports(cpu_isa()));
}

TEST(CpuIsa, names_are_the_ones_the_environment_variable_takes) {
  EXPECT_STREQ(cpu_isa_name(CpuIsa::kBase), "base");
  EXPECT_STREQ(cpu_isa_name(CpuIsa::kAvx2), "avx2");
  EXPECT_STREQ(cpu_isa_name(CpuIsa::kAvx512), "avx512");
  EXPECT_STREQ(cpu_isa_name(CpuIsa::kAvx512Bf16), "avx512bf16");
}

}  // namespace
}  // namespace dhs
