// The drafts of the demo model, each with fixed lengths and with one chosen by load.
#pragma once

#include <string>
#include <vector>

#include "dhisparse/config.h"

namespace dhs::bench {

struct DraftVariant {
  std::string draft;   // "none", "dflash2", ...
  std::string length;  // "0" without a draft, "2", "7", "auto"
  DraftConfig config;

  bool is_adaptive() const { return length == "auto"; }
};

// The variants of one draft: `short_length` (0: not that one), as many as it proposes, and auto.
// Empty where drafts_dir has no checkpoint of it, with a line on standard error.
std::vector<DraftVariant> variants_of(const std::string& draft, const std::string& drafts_dir,
                                      int short_length);

DraftVariant without_draft();

}  // namespace dhs::bench
