#include "lib/data/split_files.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"

namespace fusionllm::data {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kArchiveEndings[] = {".gz", ".bz2", ".xz", ".zst", ".zip"};
constexpr absl::string_view kTestWords[] = {"t10k", "val", "valid", "validation"};

std::optional<DatasetSplit> SplitOfName(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  if (absl::StartsWith(lower, "data_batch")) return DatasetSplit::kTraining;
  std::optional<DatasetSplit> split;
  std::string word;
  const auto end_word = [&] {
    if (split) return;
    if (absl::StartsWith(word, "train")) split = DatasetSplit::kTraining;
    const bool test = std::find(std::begin(kTestWords), std::end(kTestWords), word) != std::end(kTestWords);
    if (test || absl::StartsWith(word, "test")) split = DatasetSplit::kTest;
    word.clear();
  };
  for (const char c : lower) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      word += c;
    } else {
      end_word();
    }
  }
  end_word();
  return split;
}

// What the words of a file's path below `folder` say, the last first.
std::optional<DatasetSplit> SplitBelow(const fs::path& folder, const std::string& file) {
  const fs::path below = fs::path(file).lexically_relative(folder);
  std::vector<std::string> names;
  for (const fs::path& name : below) names.push_back(name.string());
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (const std::optional<DatasetSplit> split = SplitOfName(*name); split.has_value()) return split;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FilesOfSplit(const DatasetConfig& config, const FileFilter& filter) {
  if (config.paths.empty()) return ExpandPaths(config.paths, config.base_folder, filter).status();
  std::vector<std::string> kept;
  for (const std::string& path : config.paths) {
    FUSIONLLM_ASSIGN_OR_RETURN(std::vector<std::string> found, ExpandPaths({&path, 1}, config.base_folder, filter));
    const fs::path folder = fs::path(config.base_folder) / path;
    std::error_code error;
    if (fs::is_directory(folder, error)) {
      const auto is = [&](DatasetSplit split) { return [&, split](const std::string& file) { return SplitBelow(folder, file) == split; }; };
      const DatasetSplit other = config.split == DatasetSplit::kTraining ? DatasetSplit::kTest : DatasetSplit::kTraining;
      const bool has_split = std::any_of(found.begin(), found.end(), is(config.split));
      const bool has_only_other = std::all_of(found.begin(), found.end(), is(other));
      if (has_split) {
        std::erase_if(found, std::not_fn(is(config.split)));
      } else if (const auto first = std::find_if(found.begin(), found.end(), is(other));
                 config.split == DatasetSplit::kTest && first != found.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("data folder ", folder.string(), " holds files for training (", fs::path(*first).filename().string(),
                         ") and none to test on (t10k*, test*, val*); name the files by their paths if those are meant"));
      } else if (!has_only_other) {
        std::erase_if(found, is(other));
      }
    }
    kept.insert(kept.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }
  return kept;
}

std::vector<std::string> TakeUnpackedArchives(std::vector<std::string>& paths) {
  const auto plain = [](absl::string_view path) {
    const size_t name = path.rfind('/') == absl::string_view::npos ? 0 : path.rfind('/') + 1;
    return absl::StrCat(path.substr(0, name), absl::StrReplaceAll(path.substr(name), {{".", "-"}}));
  };
  std::set<std::string> all;
  for (const std::string& path : paths) all.insert(plain(path));
  std::vector<std::string> taken;
  std::erase_if(paths, [&](const std::string& path) {
    for (const absl::string_view ending : kArchiveEndings) {
      absl::string_view without = path;
      if (!absl::ConsumeSuffix(&without, ending) || !all.contains(plain(without))) continue;
      taken.push_back(path);
      return true;
    }
    return false;
  });
  return taken;
}

}  // namespace fusionllm::data
