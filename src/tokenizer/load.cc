#include <fstream>
#include <system_error>

#include "dhisparse/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace dhs {
namespace {

absl::StatusOr<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t num_bytes = std::filesystem::file_size(path, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat(path.string(), ": ", error.message(), "; a model directory needs this file"));
  }
  if (num_bytes > kMaxTokenizerFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path.string(), " has ", num_bytes, " bytes; the limit is ", kMaxTokenizerFileBytes));
  }
  std::string content(num_bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(content.data(), static_cast<std::streamsize>(num_bytes));
  if (!file) return absl::DataLossError(absl::StrCat(path.string(), ": cannot be read in full"));
  return content;
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::load(const std::filesystem::path& dir) {
  DHS_ASSIGN_OR_RETURN(const std::string tokenizer_json, read_file(dir / "tokenizer.json"));
  std::string config_json;
  const std::filesystem::path config_path = dir / "tokenizer_config.json";
  std::error_code error;
  if (std::filesystem::exists(config_path, error)) {
    DHS_ASSIGN_OR_RETURN(config_json, read_file(config_path));
  }
  absl::StatusOr<Tokenizer> tokenizer = from_json(tokenizer_json, config_json);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(),
                      absl::StrCat(dir.string(), ": ", tokenizer.status().message()));
}

}  // namespace dhs
