// What /metrics says, as Prometheus reads it.
#include "server/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace dhs {
namespace {

using testing::HasSubstr;

EngineState some_state() {
  EngineState state;
  state.model_name = "demo \"x\"";
  state.device = "cpu";
  state.residency_mode = "adaptive";
  state.steps = 12;
  state.running_requests = 3;
  state.queued_requests = 2;
  state.parked_requests = 1;
  state.prompt_tokens = 1000;
  state.generated_tokens = 200;
  state.preemptions = 4;
  state.parks = 6;
  state.resumes = 5;
  state.draft_cap = 6;
  state.drafts.add(2, 1);
  state.prefix = {.looked_up = 900, .on_device = 128, .on_host = 64};
  state.chunk_bytes = 1024;
  state.device_pool_bytes = 20 * 1024;
  state.device_index_bytes = 2 * 1024;
  state.device_draft_bytes = 3 * 1024;
  state.draft_moves = {.grown = 7, .released = 4};
  state.device_row_cache_bytes = 10 * 1024;
  state.chunks_free = 8;
  state.host_pool_bytes = 5000;
  state.host_used_bytes = 3000;
  state.host_cached_bytes = 400;
  state.groups.push_back({.first_layer = 0,
                          .num_layers = 1,
                          .capacity_rows = 70,
                          .chunks = 7,
                          .chunks_required = 3,
                          .rows_selected = 500,
                          .rows_hit = 40,
                          .rows_missed = 9,
                          .fetched_bytes = 4096});
  state.groups.push_back({.first_layer = 1, .num_layers = 4, .chunks = 3, .chunks_required = 5});
  state.request_figures.first_token.observe(0.03);
  state.request_figures.first_token.observe(700);
  state.request_figures.finished[static_cast<size_t>(FinishReason::kLength)] = 17;
  return state;
}

std::string text_of(const EngineState& state) {
  return exposition_text(
      {.version = "1.2.3", .is_ready = true, .engine = state, .reloads = ReloadCounts()});
}

std::set<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::set<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

constexpr char kModel[] = "model_name=\"demo \\\"x\\\"\"";

void expect_sample(const std::string& name, const std::string& labels, const std::string& value) {
  const std::string all = labels.empty() ? kModel : absl::StrCat(kModel, ",", labels);
  const std::string line = absl::StrCat("dhisparse_", name, "{", all, "} ", value);
  EXPECT_TRUE(lines_of(text_of(some_state())).contains(line)) << line;
}

TEST(Exposition, has_every_figure_of_the_engine) {
  expect_sample("requests_running", "", "3");
  expect_sample("requests_waiting", "", "2");
  expect_sample("requests_parked", "", "1");
  expect_sample("prompt_tokens_total", "", "1000");
  expect_sample("generation_tokens_total", "", "200");
  expect_sample("requests_finished_total", "reason=\"length\"", "17");
  expect_sample("preemptions_total", "", "4");
  expect_sample("parks_total", "", "6");
  expect_sample("resumes_total", "", "5");
  expect_sample("draft_cap", "", "6");
  expect_sample("draft_draws_total", "", "1");
  expect_sample("drafts_verified_total", "", "2");
  expect_sample("drafts_accepted_total", "", "1");
  expect_sample("drafts_verified_at_total", "place=\"1\"", "1");
  expect_sample("drafts_accepted_at_total", "place=\"1\"", "0");
  expect_sample("prefix_cache_queried_tokens_total", "", "900");
  expect_sample("prefix_cache_hit_tokens_total", "tier=\"device\"", "128");
  expect_sample("prefix_cache_hit_tokens_total", "tier=\"host\"", "64");
  expect_sample("device_chunks", "owner=\"index_keys\"", "2");
  expect_sample("device_chunks", "owner=\"draft_pages\"", "3");
  expect_sample("draft_chunks_grown_total", "", "7");
  expect_sample("draft_chunks_released_total", "", "4");
  expect_sample("device_chunks", "owner=\"row_caches\"", "10");
  expect_sample("device_chunks", "owner=\"nobody\"", "8");
  expect_sample("host_used_bytes", "holder=\"requests\"", "3000");
  expect_sample("host_used_bytes", "holder=\"prefix_cache\"", "400");
  expect_sample("steps_total", "", "12");
  expect_sample("build_info", "version=\"1.2.3\"", "1");
  expect_sample("ready", "", "1");
}

TEST(Exposition, tells_index_groups_apart_and_required_from_optional_chunks) {
  expect_sample("rows_selected_total", "group=\"0\",layers=\"0-0\"", "500");
  expect_sample("rows_missed_total", "group=\"0\",layers=\"0-0\"", "9");
  expect_sample("host_fetched_bytes_total", "group=\"0\",layers=\"0-0\"", "4096");
  const std::string first = "group=\"0\",layers=\"0-0\",residency=";
  expect_sample("row_cache_chunks", first + "\"required\"", "3");
  expect_sample("row_cache_chunks", first + "\"optional\"", "4");
  const std::string second = "group=\"1\",layers=\"1-4\",residency=";
  expect_sample("row_cache_chunks", second + "\"required\"", "3");
  expect_sample("row_cache_chunks", second + "\"optional\"", "0");
}

TEST(Exposition, histograms_are_cumulative_and_end_at_infinity) {
  expect_sample("time_to_first_token_seconds_count", "", "2");
  expect_sample("time_to_first_token_seconds_bucket", "le=\"0.025\"", "0");
  expect_sample("time_to_first_token_seconds_bucket", "le=\"0.05\"", "1");
  expect_sample("time_to_first_token_seconds_bucket", "le=\"600\"", "1");
  expect_sample("time_to_first_token_seconds_bucket", "le=\"+Inf\"", "2");
}

TEST(Exposition, label_values_are_there_before_anything_happened) {
  const std::string text = text_of(EngineState());
  for (const char* reason : {"stop", "length", "cancelled", "deadline", "error"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("reason=\"", reason, "\"} 0")));
  }
  for (const char* reason : {"queue_full", "unavailable"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("reason=\"", reason, "\"} 0")));
  }
  for (const char* result : {"ok", "failed"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("result=\"", result, "\"} 0")));
  }
}

TEST(Exposition, families_have_help_a_type_and_names_by_the_rules) {
  const std::regex type_line("# TYPE (dhisparse_[a-z0-9_]+) (counter|gauge|histogram)");
  std::map<std::string, std::string> types;
  const std::set<std::string> lines = lines_of(text_of(some_state()));
  for (const std::string& line : lines) {
    std::smatch match;
    if (std::regex_match(line, match, type_line)) types[match[1]] = match[2];
  }
  EXPECT_GT(types.size(), 40u);
  for (const auto& [name, type] : types) {
    EXPECT_EQ(type == "counter", name.ends_with("_total")) << name;
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [&, &name = name](const auto& line) {
      return line.starts_with("# HELP " + name + " ");
    })) << name;
  }
}

// Of this text, every name that begins as ours do, without what a histogram adds.
std::set<std::string> names_in(const std::string& text) {
  static const std::regex kName("dhisparse_[a-z0-9_]+");
  std::set<std::string> names;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), kName);
       it != std::sregex_iterator(); ++it) {
    std::string name = it->str();
    for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
      if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    }
    names.insert(name);
  }
  return names;
}

std::string file_text(const std::string& path) {
  std::ifstream file(DHS_SOURCE_DIR "/docs/" + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Exposition, has_every_metric_that_dashboard_and_alerts_ask_for) {
  const std::set<std::string> exposed = names_in(text_of(some_state()));
  for (const char* file : {"dashboards/dhisparse.json", "dashboards/alerts.yaml"}) {
    const std::set<std::string> asked_for = names_in(file_text(file));
    EXPECT_GT(asked_for.size(), 8u) << file;
    for (const std::string& name : asked_for) EXPECT_TRUE(exposed.contains(name)) << name;
  }
}

TEST(Exposition, is_documented_metric_by_metric) {
  const std::string manual = file_text("OPERATIONS.md");
  for (const std::string& name : names_in(text_of(some_state()))) {
    const std::string leaf = name.substr(std::string("dhisparse_").size());
    EXPECT_TRUE(manual.find("`" + leaf + "`") != std::string::npos ||
                manual.find("`" + leaf + "{") != std::string::npos)
        << name;
  }
}

TEST(Exposition, while_loading_says_only_that_it_is_not_ready) {
  const std::string text = exposition_text({.version = "1.2.3"});
  EXPECT_THAT(text, HasSubstr("dhisparse_ready 0\n"));
  EXPECT_EQ(text.find("requests_running"), std::string::npos);
}

}  // namespace
}  // namespace dhs
