// What /metrics says, as text. Prometheus' library stays in exposition.cc.
//
// Names: prefix dhisparse_, base units, counters end in _total. Every label value there can be is
// there from the first scrape on. No label names a request.
#pragma once

#include <optional>
#include <string>

#include "dhisparse/config_reloader.h"
#include "dhisparse/engine.h"

namespace dhs {

inline constexpr char kExpositionContentType[] = "text/plain; version=0.0.4; charset=utf-8";

struct Exposition {
  std::string version;  // of the program
  bool is_ready = false;
  std::optional<EngineState> engine;  // absent while it loads
  std::optional<ReloadCounts> reloads;
};

std::string exposition_text(const Exposition& exposition);

}  // namespace dhs
