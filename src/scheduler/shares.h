// Sharing a budget equally, where nobody takes more than it wants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dhs {

// By `wanted`: what each gets. Whoever wants less than an equal share gets all of it, and what is
// left is shared among the others. What does not divide goes to those who want least, of equals to
// the first.
std::vector<int64_t> share_out(int64_t budget, std::span<const int64_t> wanted);

}  // namespace dhs
