// Sizes and shares for people.
#pragma once

#include <cstdint>
#include <string>

namespace dhs {

// "12.5 MiB"; whole bytes below 1 KiB.
std::string size_text(int64_t num_bytes);

// "12.50 %", or "-" of nothing.
std::string percent_text(int64_t part, int64_t whole);

}  // namespace dhs
