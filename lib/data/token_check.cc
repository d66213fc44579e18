#include "lib/data/token_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/file_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::data {
namespace {

bool HasExtension(absl::string_view path, std::initializer_list<absl::string_view> extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](absl::string_view e) { return absl::EndsWith(path, e); });
}

constexpr int64_t kSampledTokens = 4096;
constexpr int64_t kFewestSampledTokens = 16;  // fewer zeros may be chance

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
    if (DecodeId(first.data(), 4) != header.magic) continue;
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " begins with the header of llm.c's files of tokens (magic ", header.magic,
                                                   ", ", kLlmcHeaderBytes, " bytes), which would be read as ids: strip it by tail -c +",
                                                   kLlmcHeaderBytes + 1, " FILE > NEW.u", header.bits, ", which leaves bare ids of ",
                                                   header.bits, " bits"));
  }
  return absl::OkStatus();
}

// Such as an archive, a table, or a pointer to the file that was meant.
absl::Status CheckNotOfAFormat(const base::SourceFile& file) {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::FileFormat* const format, base::FormatOf(file));
  if (format == nullptr || !format->is_certain) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), " is ", format->name, ", whose bytes would be read as ids: ", format->remedy.empty() ? kBareIdsRemedy : format->remedy));
}

// Of words of `bytes` bytes.
std::vector<uint64_t> WordsOf(std::span<const std::byte> raw, size_t bytes) {
  std::vector<uint64_t> words(raw.size() / bytes);
  for (size_t i = 0; i < words.size() * bytes; ++i) {
    words[i / bytes] |= std::to_integer<uint64_t>(raw[i]) << (8 * (i % bytes));
  }
  return words;
}

struct FloatType {
  size_t bytes;
  int mantissa_bits, bias;
};
constexpr FloatType kFloatTypes[] = {{2, 10, 15}, {4, 23, 127}, {8, 52, 1023}};

// Whether all words, read as numbers of IEEE 754, are whole and none is negative, with some so small that bits of theirs must be zero which
// in ids are not: then they are ids as such numbers.
bool AreWholeFloats(const std::vector<uint64_t>& words, const FloatType& type) {
  constexpr int kMaxExponent = 31, kTellingBits = 2;
  constexpr size_t kFewestTelling = 8;  // different ones
  std::set<uint64_t> telling;
  for (const uint64_t word : words) {
    if (word == 0) continue;
    const int exponent = static_cast<int>(word >> type.mantissa_bits) - type.bias;  // with the sign above it
    if (exponent < 0 || exponent > std::min(kMaxExponent, type.bias)) return false;
    const int fraction_bits = type.mantissa_bits - exponent;
    if (fraction_bits > 0 && (word & ((uint64_t{1} << fraction_bits) - 1)) != 0) return false;
    if (fraction_bits >= kTellingBits) telling.insert(word);
  }
  return telling.size() >= kFewestTelling;
}

bool AllUpperHalvesAreZero(const std::vector<uint64_t>& words, size_t bytes) {
  uint64_t lower = 0, upper = 0;
  for (const uint64_t word : words) {
    lower |= word & ((uint64_t{1} << (4 * bytes)) - 1);
    upper |= word >> (4 * bytes);
  }
  return lower != 0 && upper == 0;
}

// Ids of another type than those that are read: which numpy makes by default, or a name does not tell.
absl::Status CheckNotOfAnotherType(const base::SourceFile& file) {
  constexpr int64_t kSampledBytes = 1 << 14;
  constexpr size_t kFewestWords = 64;  // fewer zeros may be chance
  std::vector<std::byte> raw(static_cast<size_t>(std::min(kSampledBytes, file.size() / 8 * 8)));
  FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(0, raw));
  const auto looks = [&](const auto&... like) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " looks like ids of ", like..., "; ", kBareIdsRemedy));
  };
  for (const FloatType& type : kFloatTypes) {
    const std::vector<uint64_t> words = WordsOf(raw, type.bytes);
    if (words.size() < kFewestWords || !AreWholeFloats(words, type)) continue;
    return looks("type float", 8 * type.bytes, " (if they are not, set spec.data.tokenDtype)");
  }
  const std::vector<uint64_t> wide = WordsOf(raw, 8), half = WordsOf(raw, 4);
  if (wide.size() >= kFewestWords && AllUpperHalvesAreZero(wide, 8)) {
    return looks("64 bits, numpy's default: the upper half of each is zero");
  }
  if (IsNarrowName(file.path()) && half.size() >= kFewestWords && AllUpperHalvesAreZero(half, 4)) {
    return looks("32 bits, and its name says 16: every second one would be 0; call it .u32, or set spec.data.tokenDtype: uint16 if that ",
                 "is meant");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsWideName(absl::string_view path) { return HasExtension(path, {".u32", ".uint32"}); }
bool IsNarrowName(absl::string_view path) { return HasExtension(path, {".u16", ".uint16"}); }
bool IsEitherName(absl::string_view path) { return HasExtension(path, {".bin"}); }

int64_t DecodeId(const std::byte* at, int64_t width) {
  uint32_t id = 0;
  for (int64_t i = 0; i < width; ++i) id |= std::to_integer<uint32_t>(at[i]) << (8 * i);
  return id;
}

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

absl::Status CheckHoldsIds(const DatasetConfig& config, const base::SourceFile& file) {
  FUSIONLLM_RETURN_IF_ERROR(CheckNotOfAFormat(file));
  FUSIONLLM_RETURN_IF_ERROR(CheckNotOfLlmc(file));
  return config.token_dtype.empty() ? CheckNotOfAnotherType(file) : absl::OkStatus();
}

absl::Status CheckNotBytes(const base::SourceFile& file) {
  FUSIONLLM_ASSIGN_OR_RETURN(const bool bytes, LooksLikeBytes(file));
  if (!bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), " looks like text or ids of 8 bits, two of which would be read as one id of 16 bits: for text set ",
                   "spec.data.kind: text; for ids ", kBareIdsRemedy, "; if they are of 16 bits, set spec.data.tokenDtype: uint16"));
}

}  // namespace fusionllm::data
