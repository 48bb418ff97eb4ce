#include "draft_variants.h"

#include <cstdio>
#include <filesystem>

namespace dhs::bench {
namespace {

struct KnownDraft {
  const char* name;
  DraftKind kind;
  bool has_checkpoint;
  int num_proposed;  // at most
};

constexpr KnownDraft kDrafts[] = {
    {"dflash2", DraftKind::kDflash2, true, 7},
    {"dspark", DraftKind::kDspark, true, 7},
    {"mtp", DraftKind::kMtp, true, 7},
    {"ngram", DraftKind::kNgram, false, kNgramTokens},
};

}  // namespace

std::vector<DraftVariant> variants_of(const std::string& draft, const std::string& drafts_dir,
                                      int short_length) {
  std::vector<DraftVariant> variants;
  for (const KnownDraft& known : kDrafts) {
    if (draft != known.name) continue;
    DraftConfig config{.kind = known.kind};
    if (known.has_checkpoint) {
      config.path = drafts_dir + "/" + draft;
      if (!std::filesystem::exists(config.path + "/config.json")) {
        std::fprintf(stderr, "%s has no draft: left out\n", config.path.c_str());
        continue;
      }
    }
    for (int length : {short_length, known.num_proposed}) {
      if (length == 0) continue;
      config.max_tokens = length;
      variants.push_back({draft, std::to_string(length), config});
    }
    config.max_tokens = 0;
    variants.push_back({draft, "auto", config});
  }
  return variants;
}

DraftVariant without_draft() { return {"none", "0", DraftConfig()}; }

}  // namespace dhs::bench
