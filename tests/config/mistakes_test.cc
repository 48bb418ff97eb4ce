// Every class of mistake, with the exact message an operator reads.
#include <gtest/gtest.h>

#include <algorithm>

#include "dhisparse/base.h"
#include "src/config/parse_config.h"

namespace dhs {
namespace {

// What parse_config says about `text`; "" when it accepts it.
std::string errors_of(const std::string& text) {
  const auto loaded = parse_config(text, "a.yaml", {});
  if (loaded.ok()) return "";
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(loaded.status().message());
}

// The same for `lines` (indented by two) after a valid head of three lines.
std::string errors_after_head(const std::string& lines) {
  return errors_of("schema_version: 1\nmodel:\n  path: /m\n" + lines);
}

TEST(Mistakes, the_head_of_these_tests_is_valid) { EXPECT_EQ(errors_after_head(""), ""); }

TEST(Mistakes, unknown_key_with_a_close_one) {
  EXPECT_EQ(errors_after_head("residency:\n  mod: fixed\n"),
            "a.yaml:5:3: residency.mod: unknown key; did you mean 'residency.mode'?");
  EXPECT_EQ(errors_after_head("scheduler:\n  max_runing: 3\n"),
            "a.yaml:5:3: scheduler.max_runing: unknown key; did you mean 'scheduler.max_running'?");
}

TEST(Mistakes, unknown_key_with_a_unit_in_its_name) {
  EXPECT_EQ(errors_after_head("limits:\n  max_prompt_bytes: 32MiB\n"),
            "a.yaml:5:3: limits.max_prompt_bytes: unknown key; did you mean 'limits.max_prompt'?");
  EXPECT_EQ(errors_after_head("device:\n  num_threads: 2\n"),
            "a.yaml:5:3: device.num_threads: unknown key; did you mean 'device.threads'?");
}

TEST(Mistakes, unknown_key_with_nothing_close) {
  EXPECT_EQ(errors_after_head("kv:\n  zzz: 1\n"),
            "a.yaml:5:3: kv.zzz: unknown key; the keys of 'kv' are: row_format, index_format, "
            "prefix_cache");
  EXPECT_EQ(errors_after_head("gpu:\n  memory: 1\n"),
            "a.yaml:4:1: gpu: unknown key; the sections are: model, draft, device, parallel, "
            "host, kv, residency, scheduler, limits, server, log");
}

TEST(Mistakes, key_in_the_wrong_section) {
  EXPECT_EQ(errors_after_head("server:\n  max_running: 1\n"),
            "a.yaml:5:3: server.max_running: unknown key; did you mean 'scheduler.max_running'?");
  EXPECT_EQ(errors_after_head("listen: 127.0.0.1:1\n"),
            "a.yaml:4:1: listen: unknown key; did you mean 'server.listen'?");
}

TEST(Mistakes, misspelt_section_is_one_error_whatever_it_holds) {
  EXPECT_EQ(errors_of("schema_version: 1\nmodle: {path: /m, nonsense: 3}\n"),
            "a.yaml:2:1: modle: unknown key; did you mean 'model'?");
  EXPECT_EQ(errors_of("schema_verison: 1\nmodel: {path: /m}\n"),
            "a.yaml:1:1: schema_verison: unknown key; did you mean 'schema_version'?");
}

TEST(Mistakes, misspelt_required_key_is_not_also_missing) {
  EXPECT_EQ(errors_of("schema_version: 1\nmodel: {paht: /m}\n"),
            "a.yaml:2:9: model.paht: unknown key; did you mean 'model.path'?");
}

TEST(Mistakes, key_with_a_dot_in_the_file) {
  EXPECT_EQ(errors_of("schema_version: 1\nmodel.path: /m\n"),
            "a.yaml:2:1: yaml: key 'model.path' has a dot; in a file write the section and, "
            "indented below it, the key");
}

TEST(Mistakes, duplicate_key_and_section) {
  EXPECT_EQ(errors_after_head("  path: /n\n"),
            "a.yaml:4:3: model.path: duplicate key, first given at line 3 column 3; remove one of "
            "them");
  EXPECT_EQ(errors_after_head("model:\n  zzz: 1\n"),
            "a.yaml:4:1: model: duplicate key, first given at line 2 column 1; remove one of them");
}

TEST(Mistakes, names_every_missing_key) {
  const std::string no_version =
      "a.yaml:1:1: schema_version: the key is missing; start the file with 'schema_version: 1'";
  EXPECT_EQ(errors_of("model: {path: /m}\n"), no_version);
  for (const char* empty : {"", "\n\n", "# nothing\n", "---\n", "~\n"}) {
    EXPECT_EQ(errors_of(empty),
              no_version + "\na.yaml:1:1: model.path: the key is missing; write a directory");
  }
  EXPECT_EQ(errors_of("schema_version: 1\n\nmodel:\n  name: m\n"),
            "a.yaml:3:1: model.path: the key is missing; write a directory");
}

TEST(Mistakes, version_this_build_does_not_read) {
  for (const char* version : {"2", "1.0", "\"1\"", "one"}) {
    const std::string text = version[0] == '"' ? "1" : version;
    EXPECT_EQ(errors_of(absl::StrCat("schema_version: ", version, "\nmodel: {path: /m}\n")),
              absl::StrCat("a.yaml:1:17: schema_version: '", text,
                           "' is not a version this build reads; write 'schema_version: 1' and "
                           "the keys of that version"));
  }
}

TEST(Mistakes, section_that_is_a_value_and_value_that_is_a_section) {
  EXPECT_EQ(errors_of("schema_version: 1\nmodel: /m\n"),
            "a.yaml:2:8: model: is a section; below it, indented, write its keys: path, name, "
            "max_context");
  EXPECT_EQ(errors_after_head("log:\n  level:\n    x: 1\n"),
            "a.yaml:6:5: log.level: a map is not a value of this key; write one of debug, info, "
            "warning, error or remove the key");
  EXPECT_EQ(errors_after_head("  name: [a, b]\n"),
            "a.yaml:4:9: model.name: a list is not a value of this key; write text or remove the "
            "key");
  EXPECT_EQ(errors_after_head("host:\n  pool:\nkv:\n"),
            "a.yaml:5:3: host.pool: there is no value; write a size from 1MiB to 64TiB or remove "
            "the key");
}

TEST(Mistakes, explains_a_wrong_integer) {
  const auto error = [](const std::string& value) {
    return errors_after_head("scheduler: {max_running: " + value + "}\n");
  };
  const std::string place = "a.yaml:4:26: scheduler.max_running: ";
  const std::string remedy = "; write a whole number from 1 to 65536";
  EXPECT_EQ(error("0"), place + "0 is below the minimum of 1" + remedy);
  EXPECT_EQ(error("-99999999999999999999"),
            place + "-99999999999999999999 is below the minimum of 1" + remedy);
  EXPECT_EQ(error("65537"), place + "65537 is above the maximum of 65536" + remedy);
  EXPECT_EQ(error("4294967297"), place + "4294967297 is above the maximum of 65536" + remedy);
  EXPECT_EQ(error("99999999999999999999"),
            place + "99999999999999999999 is above the maximum of 65536" + remedy);
  for (const char* value : {"3.0", "1e3", "0x10", "010", "1_000", "+3", "many", "-"}) {
    EXPECT_EQ(error(value), place + "'" + value + "' is not a whole number" + remedy);
  }
  EXPECT_EQ(error("'3'"), place + "'3' is quoted text" + remedy + " without quotes");
}

TEST(Mistakes, explains_a_wrong_size) {
  const auto error = [](const std::string& value) {
    return errors_after_head("device: {chunk: " + value + "}\n");
  };
  const std::string place = "a.yaml:4:17: device.chunk: ";
  const std::string range = "; write a size from 4KiB to 1GiB, a multiple of 4KiB";
  EXPECT_EQ(error("1KiB"), place + "1KiB is below the minimum of 4KiB" + range);
  EXPECT_EQ(error("2GiB"), place + "2GiB is above the maximum of 1GiB" + range);
  EXPECT_EQ(error("5000"),
            place + "5000 (5000 bytes) is not a multiple of 4KiB; write for example 8KiB");
  EXPECT_EQ(error("64M"), place +
                              "'64M' is not a size: 'M' is not a unit; write a number and B, KB, "
                              "MB, GB, TB, KiB, MiB, GiB or TiB, such as 64MiB");
}

TEST(Mistakes, explains_a_wrong_fraction) {
  const auto error = [](const std::string& value) {
    return errors_after_head("residency: {grow_worth: " + value + "}\n");
  };
  const std::string place = "a.yaml:4:25: residency.grow_worth: ";
  const std::string remedy = "; write a number from 0 to 1";
  EXPECT_EQ(error("-0.1"), place + "-0.1 is below the minimum of 0" + remedy);
  EXPECT_EQ(error("1.01"), place + "1.01 is above the maximum of 1" + remedy);
  for (const char* value : {"1%", "nan", "inf", "half", "0.3.1"}) {
    EXPECT_EQ(error(value), place + "'" + value + "' is not a number" + remedy);
  }
  EXPECT_EQ(error("'0.3'"), place + "'0.3' is quoted text" + remedy + " without quotes");
}

TEST(Mistakes, a_link_is_emulated_on_the_cpu_and_with_a_bandwidth) {
  EXPECT_EQ(errors_after_head("device:\n  emulate_link: true\n"),
            "a.yaml:5:3: device.emulate_link: device.emulate_link is true and "
            "device.link_bandwidth is not given; set it to the bytes a second of the link");
  EXPECT_EQ(errors_after_head("device:\n  emulate_link: true\n  backend: cuda\n"
                              "  link_bandwidth: 1GB\n"),
            "a.yaml:5:3: device.emulate_link: device.emulate_link is true and device.backend is "
            "cuda, which has a link of its own; set device.backend to cpu, or device.emulate_link "
            "to false");
}

TEST(Mistakes, explains_a_wrong_duration) {
  EXPECT_EQ(errors_after_head("limits: {max_request_time: 10us}\n"),
            "a.yaml:4:28: limits.max_request_time: 10us is below the minimum of 1ms; write a "
            "duration from 1ms to inf");
  EXPECT_EQ(errors_after_head("server: {drain_timeout: 30}\n"),
            "a.yaml:4:25: server.drain_timeout: '30' is not a duration: it has no unit; write a "
            "number and us, ms, s, m or h, such as 30s, or inf");
}

TEST(Mistakes, booleans_are_true_and_false_only) {
  for (const char* value : {"no", "yes", "on", "off", "True", "FALSE", "1", "0"}) {
    EXPECT_EQ(errors_after_head(absl::StrCat("server: {reflection: ", value, "}\n")),
              absl::StrCat("a.yaml:4:22: server.reflection: '", value,
                           "' is not a boolean; write true or false"));
  }
  EXPECT_EQ(errors_after_head("server: {reflection: \"true\"}\n"),
            "a.yaml:4:22: server.reflection: 'true' is quoted text; write true or false without "
            "quotes");
}

TEST(Mistakes, names_the_choices_there_are) {
  EXPECT_EQ(errors_after_head("residency: {mode: adaptve}\n"),
            "a.yaml:4:19: residency.mode: 'adaptve' is not one of adaptive, fixed, resident; did "
            "you mean 'adaptive'?");
  EXPECT_EQ(errors_after_head("kv: {row_format: int4}\n"),
            "a.yaml:4:18: kv.row_format: 'int4' is not one of f32, bf16, fp8; write one of them");
}

TEST(Mistakes, listen_is_host_and_port) {
  const auto error = [](const std::string& value) {
    return errors_after_head("server: {listen: '" + value + "'}\n");
  };
  const auto expected = [](const std::string& value, const std::string& reason) {
    return "a.yaml:4:18: server.listen: '" + value + "' is not host:port: " + reason +
           "; write an address such as 127.0.0.1:50051, or [::1]:50051 for IPv6";
  };
  EXPECT_EQ(error("localhost"), expected("localhost", "there is no ':'"));
  for (const char* value : {":50051", "::1:50051", "[::1:5", "[]:5", "a b:5", "http://a:5"}) {
    EXPECT_EQ(error(value), expected(value, "the host is not a name or address"));
  }
  for (const char* value : {"a:", "a:65536", "a:-1", "a:http", "a:999999999999"}) {
    EXPECT_EQ(error(value), expected(value, "the port is not from 0 to 65535"));
  }
  for (const char* value : {"[::1]:50051", "0.0.0.0:0", "my-host.local:65535"}) {
    EXPECT_EQ(error(value), "");
  }
}

TEST(Mistakes, texts_and_paths) {
  EXPECT_EQ(errors_of("schema_version: 1\nmodel: {path: ''}\n"),
            "a.yaml:2:15: model.path: the path is empty; write the directory of the model");
  EXPECT_EQ(errors_of("schema_version: 1\nmodel: {path: /}\n"),
            "a.yaml:2:9: model.path: '/' has no last component to name the model after; set "
            "model.name");
  EXPECT_EQ(errors_after_head("  name: \"a\\nb\"\n"),
            "a.yaml:4:9: model.name: 'a\\nb' has a control character; remove it");
  EXPECT_EQ(errors_after_head("  name: \"a\\_b\"\n"),
            "a.yaml:4:9: model.name: 'a\\xa0b' is not UTF-8; write the characters themselves, no "
            "escapes");
  EXPECT_EQ(errors_after_head("  name: " + std::string(5000, 'x') + "\n"),
            "a.yaml:4:9: model.name: the text has 5000 bytes, the limit is 4096; shorten it");
}

TEST(Mistakes, more_running_requests_than_tokens_in_a_step_is_a_contradiction) {
  EXPECT_EQ(errors_after_head("scheduler:\n  max_running: 64\n  max_batched_tokens: 32\n"),
            "a.yaml:5:3: scheduler.max_running: scheduler.max_running (64) is larger than "
            "scheduler.max_batched_tokens (32); lower scheduler.max_running or raise "
            "scheduler.max_batched_tokens");
}

TEST(Mistakes, chunk_larger_than_memory_is_reported_where_it_was_written) {
  EXPECT_EQ(errors_after_head("device:\n  chunk: 128MiB\n"),
            "a.yaml:5:3: device.chunk: device.chunk (128MiB) is larger than device.memory (64MiB); "
            "lower device.chunk or raise device.memory");
  EXPECT_EQ(errors_after_head("device:\n  memory: 1MiB\n"),
            "a.yaml:5:3: device.memory: device.chunk (2MiB) is larger than device.memory (1MiB); "
            "lower device.chunk or raise device.memory");
}

TEST(Mistakes, memory_of_fewer_than_four_chunks) {
  EXPECT_EQ(errors_after_head("device:\n  memory: 8191KiB\n"),
            "a.yaml:5:3: device.memory: device.memory (8191KiB) holds 3 chunks of device.chunk "
            "(2MiB), the minimum is 4; raise device.memory to 8MiB or lower device.chunk");
  EXPECT_EQ(errors_after_head("device:\n  memory: 8MiB\n"), "");
}

TEST(Mistakes, contradictions_of_a_wrong_value_are_not_reported) {
  EXPECT_EQ(errors_after_head("device: {memory: 1MiB, chunk: 1}\n"),
            "a.yaml:4:31: device.chunk: 1 is below the minimum of 4KiB; write a size from 4KiB to "
            "1GiB, a multiple of 4KiB");
}

TEST(Mistakes, anchors_aliases_and_tags) {
  EXPECT_EQ(errors_after_head("  name: &x m\nkv: *x\n"),
            "a.yaml:4:9: model.name: an anchor (&x) is not accepted; remove it and write each "
            "value out\n"
            "a.yaml:5:5: kv: an alias (*) is not accepted; write the value out");
  EXPECT_EQ(errors_after_head("  name: !!str 5\n"),
            "a.yaml:4:9: model.name: a tag (tag:yaml.org,2002:str) is not accepted; remove it, the "
            "key decides the type");
}

TEST(Mistakes, alias_bomb_is_not_expanded) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string ref = absl::StrCat("*a", i - 1);
    absl::StrAppend(&text, "a", i, ": &a", i, " [", ref, ", ", ref, ", ", ref, ", ", ref, "]\n");
  }
  const std::string errors = errors_of(text);
  EXPECT_NE(errors.find("a.yaml:1:5: a0: an anchor (&a0) is not accepted"), std::string::npos);
  EXPECT_NE(errors.find("a.yaml:2:10: a1: an alias (*) is not accepted"), std::string::npos);
  // 30 anchors, 4 * 29 aliases and 30 unknown keys; schema_version and model.path are missing.
  EXPECT_TRUE(errors.ends_with("and 78 more errors; fix these first")) << errors;
}

TEST(Mistakes, refuses_a_second_document) {
  const std::string expected =
      "a.yaml:4:1: yaml: a second document starts here; a configuration is one document, remove "
      "the rest";
  EXPECT_EQ(errors_after_head("---\nzzz: 1\n"), expected);
  EXPECT_EQ(errors_of("---\nschema_version: 1\nmodel: {path: /m}\n...\n"), "");
}

TEST(Mistakes, tab_as_indentation_and_as_separator) {
  EXPECT_EQ(errors_of("schema_version: 1\nmodel:\n\tpath: /m\n"),
            "a.yaml:3:1: yaml: a tab is not accepted; use spaces");
  EXPECT_EQ(errors_after_head("log:\t{level: loud}\n"),
            "a.yaml:4:5: yaml: a tab is not accepted; use spaces\n"
            "a.yaml:4:14: log.level: 'loud' is not one of debug, info, warning, error; write one "
            "of them");
}

TEST(Mistakes, bytes_that_are_not_text) {
  EXPECT_EQ(
      errors_after_head("#\x04\nzzz: 1\n"),
      "a.yaml:4:2: yaml: byte 0x04 is a control character; save the file as plain UTF-8 text");
  for (const char* bytes :
       {"\xFF", "\xC3(", "\xC0\xAF", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"}) {
    EXPECT_NE(errors_after_head(absl::StrCat("# ", bytes, "\n")).find("a.yaml:4:3: yaml: byte 0x"),
              std::string::npos);
  }
  EXPECT_EQ(errors_after_head("  name: \xC3\xA9t\xC3\xA9-\xE2\x82\xAC-\xF0\x9F\x98\x80\n"), "");
}

TEST(Mistakes, long_texts_are_cut_at_a_character) {
  std::string euros;
  for (int i = 0; i < 50; ++i) euros += "\xE2\x82\xAC";
  EXPECT_EQ(errors_after_head("log: {level: " + euros + "}\n"),
            "a.yaml:4:14: log.level: '" + euros.substr(0, 78) +
                "...' is not one of debug, info, warning, error; write one of them");
}

TEST(Mistakes, syntax_error_hides_the_rest_but_not_what_was_read) {
  EXPECT_EQ(errors_of("schema_version: 1\nlog: {level: loud}\nmodel: {path: \"\\q\"}\n"),
            "a.yaml:2:14: log.level: 'loud' is not one of debug, info, warning, error; write one "
            "of them\n"
            "a.yaml:3:18: yaml: syntax error: unknown escape character: q; what follows was not "
            "read, fix this");
}

TEST(Mistakes, text_that_is_not_a_map) {
  for (const char* text : {"- a\n", "hello\n", "[]\n"}) {
    EXPECT_EQ(errors_of(text),
              "a.yaml:1:1: yaml: the file is not a map; write sections, such as 'model:' and below "
              "it '  path: ...'");
  }
  EXPECT_NE(errors_of(std::string(100000, '[')).find("levels of nesting"), std::string::npos);
}

TEST(Mistakes, keys_that_are_not_words) {
  EXPECT_EQ(errors_after_head("? [a, b]\n: {mode: 1}\n~: x\n'': x\n"),
            "a.yaml:4:3: yaml: a key must be a word; write 'key: value'\n"
            "a.yaml:6:1: yaml: a key must be a word; write 'key: value'\n"
            "a.yaml:7:1: yaml: a key must be a word; write 'key: value'");
}

TEST(Mistakes, five_in_one_file_are_five_errors_in_the_order_of_the_file) {
  EXPECT_EQ(errors_of("schema_version: 1\n"
                      "model:\n"
                      "  path: /m\n"
                      "  path: /n\n"
                      "device:\n"
                      "  chunk: 32MiB\n"
                      "  thread: 2\n"
                      "server:\n"
                      "  reflection: yes\n"
                      "scheduler: {max_running: -1}\n"),
            "a.yaml:4:3: model.path: duplicate key, first given at line 3 column 3; remove one of "
            "them\n"
            "a.yaml:6:3: device.chunk: device.memory (64MiB) holds 2 chunks of device.chunk "
            "(32MiB), the minimum is 4; raise device.memory to 128MiB or lower device.chunk\n"
            "a.yaml:7:3: device.thread: unknown key; did you mean 'device.threads'?\n"
            "a.yaml:9:15: server.reflection: 'yes' is not a boolean; write true or false\n"
            "a.yaml:10:26: scheduler.max_running: -1 is below the minimum of 1; write a whole "
            "number from 1 to 65536");
}

TEST(Mistakes, after_a_hundred_only_their_number_is_given) {
  std::string text;
  for (int i = 0; i < 150; ++i) absl::StrAppend(&text, "zzzzzzzz", i, ": 1\n");
  const std::string errors = errors_after_head(text);
  EXPECT_EQ(std::count(errors.begin(), errors.end(), '\n'), 100);
  EXPECT_TRUE(errors.ends_with("\nand 50 more errors; fix these first"));
}

TEST(Mistakes, draft_without_its_checkpoint) {
  const std::string wrong =
      "a.yaml:5:3: draft.kind: this kind of draft has a checkpoint of its own and draft.path is "
      "not "
      "given; set it to the draft's directory";
  for (const char* kind : {"dflash2", "dspark", "dflash"}) {
    EXPECT_EQ(errors_after_head(absl::StrCat("draft:\n  kind: ", kind, "\n")), wrong) << kind;
  }
  for (const char* kind : {"none", "mtp", "ngram"}) {
    EXPECT_EQ(errors_after_head(absl::StrCat("draft:\n  kind: ", kind, "\n")), "") << kind;
  }
  for (const char* kind : {"none", "mtp", "dflash2", "dspark", "dflash"}) {
    EXPECT_EQ(errors_after_head(absl::StrCat("draft:\n  path: /d\n  kind: ", kind, "\n")), "")
        << kind;
  }
  EXPECT_EQ(
      errors_after_head("draft:\n  kind: ngram\n  path: /d\n"),
      "a.yaml:6:3: draft.path: draft.kind is ngram, which has no checkpoint, and draft.path is "
      "'/d'; remove draft.path or set another draft.kind");
}

TEST(Mistakes, draft_temperatures_of_a_draft_without_confidence) {
  EXPECT_EQ(errors_after_head("draft:\n  kind: dspark\n  path: /d\n  temperatures: /t\n"), "");
  for (const char* kind : {"none", "ngram", "mtp"}) {
    EXPECT_EQ(
        errors_after_head(absl::StrCat("draft:\n  temperatures: /t\n  kind: ", kind, "\n")),
        "a.yaml:5:3: draft.temperatures: draft.temperatures ('/t') is for the confidence that "
        "drafts of kind dspark have, and draft.kind is another; remove draft.temperatures or "
        "set draft.kind: dspark")
        << kind;
  }
}

TEST(Mistakes, lengths_of_drafts_and_ngrams) {
  EXPECT_EQ(errors_after_head("draft:\n  max_tokens: 31\n"), "");
  EXPECT_EQ(errors_after_head("draft:\n  max_tokens: auto\n"), "");
  EXPECT_EQ(
      errors_after_head("draft:\n  max_tokens: 0\n"),
      "a.yaml:5:15: draft.max_tokens: 0 is below the minimum of 1; write a whole number from 1 "
      "to 31");
  EXPECT_EQ(
      errors_after_head("draft:\n  max_tokens: 32\n"),
      "a.yaml:5:15: draft.max_tokens: 32 is above the maximum of 31; write a whole number from "
      "1 to 31");
  EXPECT_EQ(errors_after_head("draft:\n  ngram_min: 4\n  ngram_max: 4\n"), "");
  EXPECT_EQ(errors_after_head("draft:\n  ngram_min: 5\n"),
            "a.yaml:5:3: draft.ngram_min: draft.ngram_min (5) is larger than draft.ngram_max (4); "
            "lower draft.ngram_min or raise draft.ngram_max");
}

}  // namespace
}  // namespace dhs
