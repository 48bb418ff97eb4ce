// `dhisparse plan` for people.
#pragma once

#include <string>

#include "dhisparse/capacity_plan.h"

namespace dhs {

// Several lines, each ended by a newline.
std::string plan_table(const CapacityPlan& plan);

}  // namespace dhs
