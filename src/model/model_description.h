// What a checkpoint's configuration says to those who do not compute with it.
#pragma once

#include "dhisparse/model.h"
#include "model/target_config.h"

namespace dhs {

ModelDescription describe(const TargetConfig& config);

}  // namespace dhs
