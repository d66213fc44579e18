#include "lib/data/tokens.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/data/files.h"
#include "lib/data/split_files.h"
#include "lib/data/text_check.h"
#include "lib/data/token_check.h"

namespace fusionllm::data {
namespace {

// Bytes of one token of `file`; nullopt: as its neighbours have.
absl::StatusOr<std::optional<int64_t>> TokenWidth(const DatasetConfig& config, const base::SourceFile& file) {
  if (config.kind == DatasetKind::kText) return 1;
  if (config.token_dtype == "uint16") return 2;
  if (config.token_dtype == "uint32") return 4;
  if (!config.token_dtype.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown token dtype '", config.token_dtype, "'; known: uint16 uint32"));
  }
  const std::string& path = file.path();
  if (IsWideName(path)) return 4;
  if (IsNarrowName(path)) return 2;
  if (IsEitherName(path)) {
    if (config.vocabulary_size > int64_t{1} << 16) return 4;
    return WidthByContent(file);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot tell the token width of ", path,
      " from its name: if it holds bare ids, end it in .bin, .u16 or .u32, or set spec.data.tokenDtype: uint16 or uint32; else ",
      kBareIdsRemedy));
}

absl::StatusOr<int64_t> CommonWidth(const DatasetConfig& config, const std::vector<base::SourceFile>& files) {
  const base::SourceFile* first = nullptr;
  int64_t common = 2;
  for (const base::SourceFile& file : files) {
    if (config.kind == DatasetKind::kTokens) {
      FUSIONLLM_RETURN_IF_ERROR(CheckHoldsIds(config, file));
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<int64_t> width, TokenWidth(config, file));
    if (width.value_or(2) == 2 && config.token_dtype.empty() && IsEitherName(file.path())) FUSIONLLM_RETURN_IF_ERROR(CheckNotBytes(file));
    if (!width.has_value()) continue;
    if (first != nullptr && *width != common) {
      return absl::InvalidArgumentError(absl::StrCat(first->path(), " and ", file.path(), " have tokens of different widths, of ",
                                                     8 * common, " and ", 8 * *width,
                                                     " bits, as it seems: set spec.data.tokenDtype if that is wrong"));
    }
    first = &file;
    common = *width;
  }
  return common;
}

// Of `paths`, what ExpandPaths made of the config's, those that are text; the others are refused, where they were named, or skipped.
absl::StatusOr<std::vector<std::string>> KeepText(const DatasetConfig& config, std::vector<std::string> paths, FilesRead& read) {
  std::set<std::string> named;
  for (const std::string& path : config.paths) named.insert((std::filesystem::path(config.base_folder) / path).string());
  std::vector<std::string> kept;
  std::string remedy;  // of the first that is skipped
  int64_t budget = kTextCheckedAtOpen;
  for (std::string& path : paths) {
    FUSIONLLM_ASSIGN_OR_RETURN(const base::SourceFile file, base::SourceFile::Open(path, /*keep_open=*/true));
    FUSIONLLM_ASSIGN_OR_RETURN(NotText wrong, WhyNotText(file, std::max(budget, kTextCheckedOfEach)));
    budget -= std::min(budget, file.size());
    if (wrong.why.empty()) {
      kept.push_back(std::move(path));
    } else if (named.contains(path)) {
      return absl::InvalidArgumentError(absl::StrCat(path, " is not UTF-8 text: ", wrong.why, "; ", wrong.remedy));
    } else {
      if (remedy.empty()) remedy = std::move(wrong.remedy);
      read.Skip(std::move(path), std::move(wrong.why));
    }
  }
  if (kept.empty() && !read.skipped.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no file of the data is UTF-8 text; of ", read.skipped_count, " the first is ",
                                                   read.skipped[0].path, ": ", read.skipped[0].why, "; ", remedy));
  }
  return kept;
}

class TokenWindows : public Dataset {
 public:
  TokenWindows(int64_t windows, const DatasetConfig& config, int64_t width, std::vector<base::SourceFile> files,
               std::vector<int64_t> starts, FilesRead read)
      : Dataset(windows, {{tensor::DType::kI32, {config.sequence_length}}, {tensor::DType::kI32, {config.sequence_length}}},
                std::move(read)),
        length_(config.sequence_length),
        tokens_(config.kind == DatasetKind::kTokens),
        width_(width),
        limit_(config.vocabulary_size > 0 ? std::min(config.vocabulary_size, int64_t{1} << 31) : int64_t{1} << 31),
        files_(std::move(files)),
        starts_(std::move(starts)) {}

  // Reads tokens [first, first + count) and checks them; the output may be null.
  absl::Status Read(int64_t first, int64_t count, int32_t* ids) const {
    return ForEachRun(first, count, [&](const base::SourceFile& file, int64_t within, const std::vector<std::byte>& raw) -> absl::Status {
      for (size_t at = 0; at < raw.size(); at += static_cast<size_t>(width_)) {
        const int64_t id = DecodeId(raw.data() + at, width_);
        if (id >= limit_) {
          return absl::InvalidArgumentError(absl::StrCat(
              "token ", id, " at byte ", within * width_ + static_cast<int64_t>(at), " of ", file.path(), " is outside the vocabulary of ",
              limit_,
              tokens_ ? absl::StrCat("; ids are read as ", 8 * width_, " bits, little-endian, without sign (docs/tasks/prepare-data.md)")
                      : ""));
        }
        if (ids != nullptr) *ids++ = static_cast<int32_t>(id);
      }
      return absl::OkStatus();
    });
  }

  absl::Status CheckStart() {
    constexpr int64_t kChunk = 1 << 20;
    const int64_t used = size() * length_ + 1, end = std::min(used, kTokensCheckedAtOpen);
    std::vector<int32_t> ids(static_cast<size_t>(std::min(kChunk, end)));
    for (int64_t first = 0; first < end; first += kChunk) {
      const int64_t count = std::min(kChunk, end - first);
      const absl::Status read = Read(first, count, ids.data());
      if (absl::IsInvalidArgument(read) && tokens_ && FitBigEndian(first, count)) {
        return absl::InvalidArgumentError(absl::StrCat(
            read.message(), "; read big-endian they would all be inside: write them little-endian by ids.astype('<u", width_, "')"));
      }
      FUSIONLLM_RETURN_IF_ERROR(read);
      if (first == 0 && tokens_) SetTokenIds(Count(ids));
    }
    return absl::OkStatus();
  }

 protected:
  absl::Status FillSample(int64_t index, void* input, void* target) const override {
    std::vector<int32_t> ids(static_cast<size_t>(length_) + 1);
    FUSIONLLM_RETURN_IF_ERROR(Read(index * length_, length_ + 1, ids.data()));
    const size_t bytes = static_cast<size_t>(length_) * sizeof(int32_t);
    if (input != nullptr) std::memcpy(input, ids.data(), bytes);
    if (target != nullptr) std::memcpy(target, ids.data() + 1, bytes);
    return absl::OkStatus();
  }

 private:
  // Calls `take` with the bytes of tokens [first, first + count), file by file, and the first token's index in its file.
  template <typename Take>
  absl::Status ForEachRun(int64_t first, int64_t count, const Take& take) const {
    std::vector<std::byte> raw;
    auto file = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) - starts_.begin()) - 1;
    for (; count > 0; ++file) {
      const int64_t within = first - starts_[file];
      const int64_t run = std::min(count, files_[file].size() / width_ - within);
      raw.resize(static_cast<size_t>(run * width_));
      if (run > 0) FUSIONLLM_RETURN_IF_ERROR(files_[file].ReadAt(within * width_, raw));
      FUSIONLLM_RETURN_IF_ERROR(take(files_[file], within, raw));
      first += run;
      count -= run;
    }
    return absl::OkStatus();
  }

  // Whether tokens [first, first + count) would all be in the vocabulary if their bytes lay the other way round.
  bool FitBigEndian(int64_t first, int64_t count) const {
    const absl::Status fit = ForEachRun(first, count, [&](const auto&, int64_t, std::vector<std::byte> raw) {
      std::reverse(raw.begin(), raw.end());  // the last token comes first, too
      bool inside = true;
      for (size_t at = 0; at < raw.size(); at += static_cast<size_t>(width_)) inside &= DecodeId(raw.data() + at, width_) < limit_;
      return inside ? absl::OkStatus() : absl::OutOfRangeError("");
    });
    return fit.ok();
  }

  FilesRead::TokenIds Count(std::span<const int32_t> ids) const {
    std::vector<int32_t> sorted(ids.begin(), ids.end());
    std::sort(sorted.begin(), sorted.end());
    const int32_t min_id = sorted.front(), max_id = sorted.back();
    const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    return {8 * width_, size() * length_ + 1, static_cast<int64_t>(ids.size()), min_id, max_id, distinct};
  }

  int64_t length_;
  bool tokens_;  // of a tokenizer, no text
  int64_t width_;
  int64_t limit_;  // ids are below it
  std::vector<base::SourceFile> files_;
  std::vector<int64_t> starts_;  // of each file, in tokens
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenTokenWindows(const DatasetConfig& config) {
  const int64_t length = config.sequence_length;
  if (length < 1 || length > kMaxSequenceLength) {
    return absl::InvalidArgumentError(absl::StrCat("the sequence length is ", length, " but must be in 1 .. ", kMaxSequenceLength));
  }
  const bool tokens = config.kind == DatasetKind::kTokens;
  const FileFilter filter = {[](absl::string_view name) { return IsWideName(name) || IsNarrowName(name) || IsEitherName(name); },
                             "file of token ids (*.bin, *.u16, *.uint16, *.u32, *.uint32)"};
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                             tokens ? FilesOfSplit(config, filter) : ExpandPaths(config.paths, config.base_folder));
  FilesRead read;
  if (!tokens && config.encoding == TextEncoding::kUtf8) {
    FUSIONLLM_ASSIGN_OR_RETURN(paths, KeepText(config, std::move(paths), read));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<base::SourceFile> files, OpenFiles(paths));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t width, CommonWidth(config, files));
  std::vector<int64_t> starts;
  int64_t total = 0;
  for (const base::SourceFile& file : files) {
    if (file.size() % width != 0) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), " has ", file.size(), " bytes, which is not a whole number of ", width,
                                                     "-byte tokens: is it cut off?"));
    }
    starts.push_back(total);
    total += file.size() / width;
    read.Add(file);
  }
  if (total == 0) return absl::InvalidArgumentError(absl::StrCat("the data is empty: ", files.size(), " file(s), first ", paths[0]));
  const int64_t windows = (total - 1) / length;
  if (windows < 1) {
    return absl::InvalidArgumentError(absl::StrCat("the data has ", total, " tokens (first file ", paths[0], "), but one window of ",
                                                   length, " and its targets needs ", length + 1));
  }
  auto dataset = std::make_unique<TokenWindows>(windows, config, width, std::move(files), std::move(starts), std::move(read));
  FUSIONLLM_RETURN_IF_ERROR(dataset->CheckStart());
  return dataset;
}

}  // namespace fusionllm::data
