// `dhisparse state` for people.
#pragma once

#include <string>

#include "dhisparse/client.h"

namespace dhs {

// Several lines, each ended by a newline.
std::string state_table(const ServerState& state);

}  // namespace dhs
