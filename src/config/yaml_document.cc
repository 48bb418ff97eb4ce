#include "src/config/yaml_document.h"

#include <absl/container/flat_hash_map.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <sstream>

#include "dhisparse/base.h"
#include "src/config/suggest.h"

namespace dhs {
namespace {

constexpr char kNoKey[] = "yaml";
constexpr size_t kListedDepth = 2;  // sections and their keys

SourcePosition position_of(const YAML::Mark& mark) {
  return {std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1};
}

// Turns the parser's events into entries. Events, not the library's node tree: the tree merges
// duplicate keys and expands aliases before we could see them.
class Walker : public YAML::EventHandler {
 public:
  explicit Walker(YamlDocument& document) : document_(document) {}

  // The value at the top, for a text that is one scalar.
  const YamlEntry& root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++num_documents_ == 2) {
      add_error(position_of(mark), kNoKey,
                "a second document starts here; a configuration is one document, remove the rest");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    take_node(YamlKind::kNull, mark, "");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    report_here(mark, "an alias (*) is not accepted; write the value out");
    take_node(YamlKind::kInvalid, mark, "");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    report_here(mark, absl::StrCat("an anchor (&", printable(name),
                                   ") is not accepted; remove it and write each value out"));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    check_tag(mark, tag);
    // The library marks what was in quotes with the tag "!".
    take_node(tag == "!" ? YamlKind::kQuoted : YamlKind::kPlain, mark, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(YamlKind::kSequence, mark);
  }
  void OnSequenceEnd() override { frames_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(YamlKind::kMap, mark);
  }
  void OnMapEnd() override { frames_.pop_back(); }

 private:
  // An open map or sequence. Nothing inside a muted one is listed.
  struct Frame {
    YamlKind kind = YamlKind::kMap;
    bool muted = false;
    std::string path;
    bool wants_key = true;
    bool key_muted = false;
    std::string key;
    SourcePosition key_position;
    absl::flat_hash_map<std::string, SourcePosition> seen;
  };

  void add_error(SourcePosition position, std::string path, std::string message) {
    document_.errors.push_back({position, std::move(path), std::move(message)});
  }

  void report_here(const YAML::Mark& mark, std::string message) {
    if (num_documents_ == 1) add_error(position_of(mark), current_path(), std::move(message));
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    report_here(mark, absl::StrCat("a tag (", printable(tag),
                                   ") is not accepted; remove it, the key decides the type"));
  }

  static std::string join(const std::string& path, const std::string& key) {
    return path.empty() ? key : absl::StrCat(path, ".", key);
  }

  std::string current_path() const {
    if (frames_.empty()) return kNoKey;
    const Frame& frame = frames_.back();
    const bool at_value = frame.kind == YamlKind::kMap && !frame.wants_key && !frame.key_muted;
    const std::string path = at_value ? join(frame.path, frame.key) : frame.path;
    return path.empty() ? kNoKey : path;
  }

  void open(YamlKind kind, const YAML::Mark& mark) {
    const bool listed = take_node(kind, mark, "");
    Frame frame;
    frame.kind = kind;
    frame.muted = !listed || kind != YamlKind::kMap || frames_.size() >= kListedDepth;
    frame.path = listed_path_;
    frames_.push_back(std::move(frame));
  }

  // A node of any kind has started: the root, a key or a value. True when it is the root or a
  // listed value, whose children are listed too.
  bool take_node(YamlKind kind, const YAML::Mark& mark, const std::string& text) {
    if (num_documents_ > 1) return false;
    YamlEntry node;
    node.kind = kind;
    node.text = text;
    node.value_position = position_of(mark);
    if (frames_.empty()) {
      root_ = std::move(node);
      listed_path_.clear();
      return true;
    }
    Frame& frame = frames_.back();
    listed_path_ = frame.path;
    if (frame.muted || frame.kind == YamlKind::kSequence) return false;
    frame.wants_key = !frame.wants_key;
    if (!frame.wants_key) {
      take_key(frame, node);
      return false;
    }
    if (frame.key_muted) return false;
    node.path = join(frame.path, frame.key);
    node.key_position = frame.key_position;
    // The place of a missing value is the next token, possibly lines below.
    if (node.kind == YamlKind::kNull) node.value_position = node.key_position;
    listed_path_ = node.path;
    document_.entries.push_back(std::move(node));
    return true;
  }

  void take_key(Frame& frame, const YamlEntry& node) {
    frame.key = node.text;
    frame.key_position = node.value_position;
    frame.key_muted = true;
    if (node.kind == YamlKind::kInvalid) return;
    const std::string where = frame.path.empty() ? kNoKey : frame.path;
    const bool scalar = node.kind == YamlKind::kPlain || node.kind == YamlKind::kQuoted;
    if (!scalar || node.text.empty()) {
      add_error(node.value_position, where, "a key must be a word; write 'key: value'");
      return;
    }
    if (node.text.find('.') != std::string::npos) {
      add_error(
          node.value_position, where,
          absl::StrCat("key ", quote(node.text),
                       " has a dot; in a file write the section and, indented below it, the key"));
      // Listed all the same, so that nobody also says that this key is missing.
      if (frame.path.empty()) {
        document_.entries.push_back({.path = node.text,
                                     .kind = YamlKind::kInvalid,
                                     .text = "",
                                     .key_position = node.value_position,
                                     .value_position = node.value_position});
      }
      return;
    }
    const auto [first, is_new] = frame.seen.try_emplace(node.text, node.value_position);
    if (!is_new) {
      add_error(node.value_position, join(frame.path, printable(node.text)),
                absl::StrCat("duplicate key, first given at line ", first->second.line, " column ",
                             first->second.column, "; remove one of them"));
      return;
    }
    frame.key_muted = false;
  }

  YamlDocument& document_;
  YamlEntry root_;
  std::vector<Frame> frames_;
  std::string listed_path_;  // of the node just taken
  int num_documents_ = 0;
};

// Feeds `text` to `walker`; a syntax error becomes an error of `document`, with `remedy` behind it.
void walk(const std::string& text, std::string_view remedy, Walker& walker,
          YamlDocument& document) {
  const auto fail = [&](SourcePosition position, const std::string& what) {
    document.complete = false;
    document.errors.push_back(
        {position, kNoKey, absl::StrCat(printable(what), "; ", to_absl(remedy))});
  };
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    // The second call is only there to see that nothing follows.
    if (parser.HandleNextDocument(walker)) parser.HandleNextDocument(walker);
  } catch (const YAML::DeepRecursion& error) {
    fail(position_of(error.mark), absl::StrCat("there are ", error.depth(), " levels of nesting"));
  } catch (const YAML::Exception& error) {
    fail(position_of(error.mark), absl::StrCat("syntax error: ", error.msg));
  } catch (const std::exception& error) {
    fail({}, absl::StrCat("the YAML parser failed: ", error.what()));
  }
}

std::string without_tabs(std::string_view text) {
  std::string clean(text);
  std::replace(clean.begin(), clean.end(), '\t', ' ');
  return clean;
}

}  // namespace

YamlDocument read_yaml(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());

  YamlDocument document;
  TextCheck check = check_text(text);
  for (TextProblem& problem : check.problems) {
    document.errors.push_back({problem.position, kNoKey, std::move(problem.message)});
  }
  if (!check.readable) {
    document.complete = false;
    return document;
  }
  Walker walker(document);
  walk(without_tabs(text), "what follows was not read, fix this", walker, document);
  const YamlKind root = walker.root().kind;
  if (root != YamlKind::kMap && root != YamlKind::kNull && root != YamlKind::kInvalid) {
    document.errors.push_back(
        {walker.root().value_position, kNoKey,
         "the file is not a map; write sections, such as 'model:' and below it '  path: ...'"});
    document.complete = false;
  }
  return document;
}

absl::StatusOr<YamlScalar> read_yaml_scalar(std::string_view text) {
  if (text.find_first_of("\r\n") != std::string_view::npos) {
    return absl::InvalidArgumentError("the value has a line break; write it on one line");
  }
  YamlDocument document;
  const TextCheck check = check_text(text);
  if (!check.problems.empty()) return absl::InvalidArgumentError(check.problems[0].message);
  Walker walker(document);
  walk(std::string(text), "write a single value, in quotes if it has special characters", walker,
       document);
  const YamlEntry& root = walker.root();
  if (root.kind == YamlKind::kMap || root.kind == YamlKind::kSequence) {
    return absl::InvalidArgumentError(
        "this is a map or a list; write a single value, in quotes if it has ': ', '[' or '{'");
  }
  if (!document.errors.empty()) return absl::InvalidArgumentError(document.errors[0].message);
  return YamlScalar{root.kind, root.text};
}

}  // namespace dhs
