#include "lib/data/tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
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
#include "lib/data/parts.h"
#include "lib/data/text_check.h"

namespace fusionllm::data {
namespace {

bool HasExtension(absl::string_view path, std::initializer_list<absl::string_view> extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](absl::string_view e) { return absl::EndsWith(path, e); });
}

bool IsWide(absl::string_view path) { return HasExtension(path, {".u32", ".uint32"}); }
bool IsNarrow(absl::string_view path) { return HasExtension(path, {".u16", ".uint16"}); }
bool IsEither(absl::string_view path) { return HasExtension(path, {".bin"}); }

int64_t Decode(const std::byte* at, int64_t width) {
  uint32_t id = 0;
  for (int64_t i = 0; i < width; ++i) id |= std::to_integer<uint32_t>(at[i]) << (8 * i);
  return id;
}

constexpr char kRemedy[] = "write bare ids by ids.astype('<u2').tofile(..), or '<u4' above 65,535 (docs/data.md)";

constexpr int64_t kSampledTokens = 4096;
constexpr int64_t kFewestSampledTokens = 16;  // fewer zeros may be chance

// Bytes of one token of a .bin file, which does not say: 4 when its first tokens, read as 32 bits, all fit 16 bits, since the upper halves
// of tokens of 16 bits would be ids as well. nullopt: too little to tell.
absl::StatusOr<std::optional<int64_t>> WidthByContent(const base::SourceFile& file) {
  const int64_t count = std::min(kSampledTokens, file.size() / 4);
  if (count < kFewestSampledTokens) return std::nullopt;
  std::vector<std::byte> raw(static_cast<size_t>(4 * count));
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, raw));
  bool lower = false, upper = false;
  for (size_t i = 0; i < raw.size(); i += 4) {
    lower |= (raw[i] | raw[i + 1]) != std::byte{0};
    upper |= (raw[i + 2] | raw[i + 3]) != std::byte{0};
  }
  if (upper) return 2;
  return lower ? std::optional<int64_t>(4) : std::nullopt;
}

constexpr absl::string_view kNumpyMagic = "\x93NUMPY";

// Whether bytes at odd offsets have the same distribution as those at even ones, as in text and ids of 8 bits. The upper bytes of ids of
// 16 bits have another one than the lower, unless ids are drawn evenly from all 65,536. False where there is too little to tell.
absl::StatusOr<bool> LooksLikeBytes(const base::SourceFile& file) {
  constexpr int64_t kSampledPairs = 1 << 15;
  constexpr size_t kFewestPairs = 256;
  constexpr double kMaxDistance = 0.03;  // total variation, beside what chance makes of samples
  constexpr double kMaxChance = 0.15;
  const auto pairs = static_cast<size_t>(std::min(kSampledPairs, file.size() / 2));
  if (pairs < kFewestPairs) return false;
  std::vector<std::byte> raw(2 * pairs);
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, raw));
  std::array<int64_t, 256> lower = {}, upper = {};
  for (size_t i = 0; i < pairs; ++i) {
    ++lower[std::to_integer<size_t>(raw[2 * i])];
    ++upper[std::to_integer<size_t>(raw[2 * i + 1])];
  }
  int64_t different = 0, found = 0;
  for (size_t value = 0; value < lower.size(); ++value) {
    different += std::abs(lower[value] - upper[value]);
    found += lower[value] + upper[value] > 0;
  }
  const auto count = static_cast<double>(pairs);
  // The mean distance of two samples of one distribution is at most 0.564 sqrt(values / count), where all values are as likely.
  const double chance = 0.6 * std::sqrt(static_cast<double>(found) / count);
  return chance <= kMaxChance && static_cast<double>(different) / (2 * count) <= kMaxDistance + chance;
}

// The files of ids of llm.c, and of trainers that took them over: 1,024 bytes of header, then bare ids. The magic is its first int32.
struct LlmcHeader {
  int64_t magic, bits;
};
constexpr LlmcHeader kLlmcHeaders[] = {{20240520, 16}, {20240801, 32}};
constexpr int64_t kLlmcHeaderBytes = 1024;

absl::Status CheckNotOfLlmc(const base::SourceFile& file) {
  std::array<std::byte, 4> first;
  if (file.size() < kLlmcHeaderBytes) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, first));
  for (const LlmcHeader& header : kLlmcHeaders) {
    if (Decode(first.data(), 4) != header.magic) continue;
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " begins with the header of llm.c's files of tokens (magic ", header.magic,
                                                   ", ", kLlmcHeaderBytes, " bytes), which would be read as ids: strip it by tail -c +",
                                                   kLlmcHeaderBytes + 1, " FILE > NEW.u", header.bits, ", which leaves bare ids of ",
                                                   header.bits, " bits"));
  }
  return absl::OkStatus();
}

// Files of ids that numpy makes by default and that would be read as other ids: .npy, and 64 bits an id.
absl::Status CheckNotOfNumpy(const DatasetConfig& config, const base::SourceFile& file) {
  constexpr int64_t kWords = 2048, kFewestWords = 64;  // of 64 bits; fewer zeros may be chance
  std::vector<std::byte> raw(static_cast<size_t>(std::min(8 * kWords, file.size() / 8 * 8)));
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, raw));
  if (raw.size() >= kNumpyMagic.size() && std::memcmp(raw.data(), kNumpyMagic.data(), kNumpyMagic.size()) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " is a .npy file, whose header would be read as ids: ", kRemedy));
  }
  const bool named = !config.token_dtype.empty();  // who names the width is believed
  if (named || static_cast<int64_t>(raw.size()) < 8 * kFewestWords) return absl::OkStatus();
  bool lower = false, upper = false;
  for (size_t i = 0; i < raw.size(); i += 8) {
    const auto any = [&](size_t from) { return (raw[from] | raw[from + 1] | raw[from + 2] | raw[from + 3]) != std::byte{0}; };
    lower |= any(i);
    upper |= any(i + 4);
  }
  if (upper || !lower) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), " looks like ids of 64 bits, numpy's default: the upper half of each is zero; ", kRemedy));
}

// Of a file whose width nobody names and that is read as ids of 16 bits.
absl::Status CheckNotBytes(const base::SourceFile& file) {
  FUSIONLLM_ASSIGN_OR_RETURN(const bool bytes, LooksLikeBytes(file));
  if (!bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), " looks like text or ids of 8 bits, two of which would be read as one id of 16 bits: for text set ",
                   "spec.data.kind: text; for ids ", kRemedy, "; if they are of 16 bits, set spec.data.tokenDtype: uint16"));
}

// Bytes of one token of `file`; nullopt: as its neighbours have.
absl::StatusOr<std::optional<int64_t>> TokenWidth(const DatasetConfig& config, const base::SourceFile& file) {
  if (config.kind == DatasetKind::kText) return 1;
  if (config.token_dtype == "uint16") return 2;
  if (config.token_dtype == "uint32") return 4;
  if (!config.token_dtype.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown token dtype '", config.token_dtype, "'; known: uint16 uint32"));
  }
  const std::string& path = file.path();
  if (IsWide(path)) return 4;
  if (IsNarrow(path)) return 2;
  if (IsEither(path)) {
    if (config.vocabulary_size > int64_t{1} << 16) return 4;
    return WidthByContent(file);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "cannot tell the token width of ", path,
      " from its name: if it holds bare ids, end it in .bin, .u16 or .u32, or set spec.data.tokenDtype: uint16 or uint32; else ", kRemedy));
}

absl::StatusOr<int64_t> CommonWidth(const DatasetConfig& config, const std::vector<base::SourceFile>& files) {
  const base::SourceFile* first = nullptr;
  int64_t common = 2;
  for (const base::SourceFile& file : files) {
    if (config.kind == DatasetKind::kTokens) {
      FUSIONLLM_RETURN_IF_ERROR(CheckNotOfNumpy(config, file));
      FUSIONLLM_RETURN_IF_ERROR(CheckNotOfLlmc(file));
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<int64_t> width, TokenWidth(config, file));
    if (width.value_or(2) == 2 && config.token_dtype.empty() && IsEither(file.path())) FUSIONLLM_RETURN_IF_ERROR(CheckNotBytes(file));
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

  // Reads tokens [first, first + count) and checks them; either output may be null.
  absl::Status Read(int64_t first, int64_t count, int32_t* ids) const {
    std::vector<std::byte> raw;
    auto file = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), first) - starts_.begin()) - 1;
    for (; count > 0; ++file) {
      const int64_t within = first - starts_[file];
      const int64_t run = std::min(count, files_[file].size() / width_ - within);
      raw.resize(static_cast<size_t>(run * width_));
      if (run > 0) {
        FUSIONLLM_RETURN_IF_ERROR(files_[file].ReadAt(within * width_, raw));
      }
      for (int64_t i = 0; i < run; ++i) {
        const int64_t id = Decode(raw.data() + i * width_, width_);
        if (id >= limit_) {
          return absl::InvalidArgumentError(absl::StrCat(
              "token ", id, " at byte ", (within + i) * width_, " of ", files_[file].path(), " is outside the vocabulary of ", limit_,
              tokens_ ? absl::StrCat("; ids are read as ", 8 * width_, " bits, little-endian, without sign (docs/data.md)") : ""));
        }
        if (ids != nullptr) *ids++ = static_cast<int32_t>(id);
      }
      first += run;
      count -= run;
    }
    return absl::OkStatus();
  }

  absl::Status CheckStart() {
    constexpr int64_t kChunk = 1 << 20;
    const int64_t used = size() * length_ + 1, end = std::min(used, kTokensCheckedAtOpen);
    std::vector<int32_t> ids(static_cast<size_t>(std::min(kChunk, end)));
    for (int64_t first = 0; first < end; first += kChunk) {
      FUSIONLLM_RETURN_IF_ERROR(Read(first, std::min(kChunk, end - first), ids.data()));
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
  FilesRead::TokenIds Count(std::span<const int32_t> ids) const {
    std::vector<int32_t> sorted(ids.begin(), ids.end());
    std::sort(sorted.begin(), sorted.end());
    const int32_t least = sorted.front(), greatest = sorted.back();
    const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
    return {8 * width_, size() * length_ + 1, static_cast<int64_t>(ids.size()), least, greatest, distinct};
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
  const FileFilter filter = {[](absl::string_view name) { return IsWide(name) || IsNarrow(name) || IsEither(name); },
                             "file of token ids (*.bin, *.u16, *.uint16, *.u32, *.uint32)"};
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                             tokens ? FilesOfPart(config, filter) : ExpandPaths(config.paths, config.base_folder));
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
