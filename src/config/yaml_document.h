// A YAML text as a flat list of keys with their places. Hides the YAML library.
//
// The subset we accept: one document, a map of maps of scalars. Duplicate keys, anchors, aliases,
// tags, tabs and further documents are errors here; which keys exist and what they mean is not
// known here. Never throws.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

#include "src/config/source_text.h"

namespace dhs {

enum class YamlKind {
  kPlain,     // a scalar without quotes
  kQuoted,    // a scalar in quotes or a block scalar
  kNull,      // nothing, "~" or "null"
  kMap,       //
  kSequence,  //
  kInvalid,   // an error about this value is already in `errors`
};

struct YamlEntry {
  std::string path;  // "model" or "model.path"; what lies deeper is not listed
  YamlKind kind = YamlKind::kNull;
  std::string text;  // of a scalar, unescaped
  SourcePosition key_position;
  SourcePosition value_position;
};

struct YamlError {
  SourcePosition position;
  std::string path;  // "yaml" when no key is concerned
  std::string message;
};

struct YamlDocument {
  std::vector<YamlEntry> entries;  // in the order of the text
  std::vector<YamlError> errors;   // in no order
  bool complete = true;            // false: a syntax error hides the rest of the text
};

YamlDocument read_yaml(std::string_view text);

struct YamlScalar {
  YamlKind kind = YamlKind::kNull;  // kPlain, kQuoted or kNull
  std::string text;
};

// One scalar on one line. INVALID_ARGUMENT says what is wrong.
absl::StatusOr<YamlScalar> read_yaml_scalar(std::string_view text);

}  // namespace dhs
