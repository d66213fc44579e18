#include "lib/data/text_check.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/file_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::data {
namespace {

constexpr int64_t kChunk = 1 << 20;

constexpr char kAnyBytes[] = "or train on any bytes by spec.data.encoding: bytes";
constexpr char kOnlyAnyBytes[] = "train on any bytes by spec.data.encoding: bytes";

std::string Iconv(absl::string_view encoding) { return absl::StrCat("convert it (iconv -f ", encoding, " -t utf-8), ", kAnyBytes); }

// "utf-16le" or "utf-16be": so it looks, without a mark, to go by the zeros of its first characters. Empty: it does not.
std::string UnmarkedUtf16(absl::string_view text) {
  constexpr size_t kLooked = 256, kFewest = 8;
  const size_t looked = std::min(text.size(), kLooked) / 2 * 2;
  size_t zeros[2] = {};
  for (size_t i = 0; i < looked; ++i) zeros[i % 2] += text[i] == 0;
  if (looked < kFewest || (zeros[0] > 0) == (zeros[1] > 0) || 2 * (zeros[0] + zeros[1]) < looked / 2) return "";
  return zeros[1] > 0 ? "utf-16le" : "utf-16be";
}

NotText NotTextBut(const base::FileFormat& format) {
  const std::string why = absl::StrCat("it is ", format.name);
  if (!format.encoding.empty()) return {why, Iconv(format.encoding)};
  return {why, format.remedy.empty() ? kOnlyAnyBytes : absl::StrCat(format.remedy, ", ", kAnyBytes)};
}

// Of a file of `file_bytes` that begins with `text` and is no UTF-8; nullopt: of no kind that is known.
std::optional<NotText> KnownKind(absl::string_view text, int64_t file_bytes) {
  if (const auto* format = base::FormatOf(text.substr(0, base::kFormatPrefixBytes), file_bytes)) return NotTextBut(*format);
  if (const std::string encoding = UnmarkedUtf16(text); !encoding.empty()) return NotText{"it looks like UTF-16", Iconv(encoding)};
  return std::nullopt;
}

// Bytes of the sequence at the start of `text`; 0: malformed; npos: cut off by the end.
size_t SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size()) return absl::string_view::npos;
    if ((byte(i) & 0xC0) != 0x80) return 0;
    // Overlong forms, surrogates and code points past U+10FFFF.
    if (i == 1 && ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F))) return 0;
    if (i == 1 && ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F))) return 0;
  }
  return length;
}

}  // namespace

size_t FirstNotUtf8(absl::string_view text, bool whole) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text.substr(at));
    if (length == absl::string_view::npos) return whole ? at : length;
    if (length == 0) return at;
    at += length;
  }
  return absl::string_view::npos;
}

absl::StatusOr<NotText> WhyNotText(const base::SourceFile& file, int64_t bytes_max) {
  const int64_t end = std::min(file.size(), bytes_max);
  std::string text;
  int64_t at = 0;  // of what is in `text` in the file
  while (at + static_cast<int64_t>(text.size()) < end) {
    const size_t held = text.size();
    const int64_t from = at + static_cast<int64_t>(held);
    text.resize(held + static_cast<size_t>(std::min(kChunk, end - from)));
    FUSIONLLM_RETURN_IF_ERROR(file.ReadAt(from, std::as_writable_bytes(std::span(text)).subspan(held)));
    const bool whole = at + static_cast<int64_t>(text.size()) == file.size();
    const size_t wrong = FirstNotUtf8(text, whole);
    if (wrong != absl::string_view::npos) {
      if (std::optional<NotText> known = at == 0 ? KnownKind(text, file.size()) : std::nullopt) return *std::move(known);
      const auto byte = static_cast<unsigned char>(text[wrong]);
      const int64_t offset = at + static_cast<int64_t>(wrong);
      if (byte == 0) return NotText{absl::StrCat("it has a NUL byte at offset ", offset), absl::StrCat("take it out, ", kAnyBytes)};
      return NotText{absl::StrFormat("byte 0x%02x at offset %d is not UTF-8", byte, offset), Iconv("latin1")};
    }
    // Text as well, but not the one that is meant.
    const auto* format = at == 0 ? base::FormatOf(absl::string_view(text).substr(0, base::kFormatPrefixBytes), file.size()) : nullptr;
    if (format != nullptr && format->kind == base::FileFormat::Kind::kPointer) return NotTextBut(*format);
    // What the end of this piece may have cut off goes in front of the next.
    size_t keep = 0;
    while (keep < std::min<size_t>(3, text.size()) && (static_cast<unsigned char>(text[text.size() - 1 - keep]) & 0xC0) == 0x80) ++keep;
    if (keep < text.size() && static_cast<unsigned char>(text[text.size() - 1 - keep]) >= 0xC2) ++keep;
    if (static_cast<unsigned char>(text.back()) < 0x80) keep = 0;
    at += static_cast<int64_t>(text.size() - keep);
    text.erase(0, text.size() - keep);
    if (whole) break;
  }
  return NotText{};
}

}  // namespace fusionllm::data
