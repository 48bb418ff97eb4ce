#include <cstdio>
#include <cstdlib>

#include "dhisparse/base.h"

namespace dhs {

void check_failed(const char* file, int line, const char* expression, const std::string& why) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", file, line, expression, why.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace dhs
