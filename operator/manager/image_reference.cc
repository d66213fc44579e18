#include "operator/manager/image_reference.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fusionllm::op::manager {
namespace {

constexpr size_t kMaxNameBytes = 255, kMaxTagBytes = 128, kMinDigestDigits = 32;

bool IsPlain(char c) { return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsAlnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsWord(char c) { return IsAlnum(c) || c == '_' || c == '-' || c == '.'; }

// "fusionllm", "a.b", "a__b", "a--b".
bool IsPathPart(absl::string_view part) {
  if (part.empty() || !IsPlain(part.front()) || !IsPlain(part.back())) return false;
  for (size_t at = 0; at < part.size();) {
    const size_t end = std::find_if(part.begin() + static_cast<ptrdiff_t>(at), part.end(), IsPlain) - part.begin();
    const absl::string_view between = part.substr(at, end - at);
    const bool separates = between.empty() || between == "." || between == "_" || between == "__" ||
                           std::all_of(between.begin(), between.end(), [](char c) { return c == '-'; });
    if (!separates) return false;
    at = end + 1;
  }
  return true;
}

// HOST[:PORT].
bool IsRegistry(absl::string_view text) {
  const size_t bracket = text.rfind(']');
  const size_t colon = text.find(':', bracket == absl::string_view::npos ? 0 : bracket);
  absl::string_view host = text.substr(0, colon);
  if (colon != absl::string_view::npos) {
    const absl::string_view port = text.substr(colon + 1);
    if (port.empty() || port.size() > 5 || !std::all_of(port.begin(), port.end(), IsDigit)) return false;
  }
  if (absl::StartsWith(host, "[")) {
    return host.size() > 2 && absl::EndsWith(host, "]") && std::all_of(host.begin() + 1, host.end() - 1, [](char c) {
             return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':';
           });
  }
  return !host.empty() && IsAlnum(host.front()) && IsAlnum(host.back()) &&
         std::all_of(host.begin(), host.end(), [](char c) { return IsAlnum(c) || c == '-' || c == '.'; });
}

// "sha256:" and digits.
bool IsDigest(absl::string_view text) {
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos || colon == 0) return false;
  const absl::string_view digits = text.substr(colon + 1);
  return std::all_of(text.begin(), text.begin() + static_cast<ptrdiff_t>(colon), [](char c) { return IsWord(c) || c == '+'; }) &&
         digits.size() >= kMinDigestDigits &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

bool IsName(absl::string_view text) {
  if (text.empty() || text.size() > kMaxNameBytes) return false;
  std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  const bool at_registry = parts.size() > 1 && (parts[0] == "localhost" || parts[0].find_first_of(".:") != absl::string_view::npos ||
                                                std::any_of(parts[0].begin(), parts[0].end(), absl::ascii_isupper));
  if (at_registry && !IsRegistry(parts[0])) return false;
  return std::all_of(parts.begin() + (at_registry ? 1 : 0), parts.end(), IsPathPart);
}

bool IsTag(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxTagBytes && text[0] != '.' && text[0] != '-' && std::all_of(text.begin(), text.end(), IsWord);
}

bool IsImage(absl::string_view text) {
  const size_t at = text.find('@');
  if (at != absl::string_view::npos && !IsDigest(text.substr(at + 1))) return false;
  const absl::string_view name = text.substr(0, at);
  const size_t colon = name.rfind(':'), slash = name.rfind('/');
  const bool tagged = colon != absl::string_view::npos && (slash == absl::string_view::npos || colon > slash);
  return tagged ? IsTag(name.substr(colon + 1)) && IsName(name.substr(0, colon)) : IsName(name);
}

}  // namespace

std::string CheckImage(absl::string_view text) {
  if (IsImage(text)) return "";
  return absl::StrCat("must be an image such as registry.example.org/ml/broker:v1, in lower-case letters but for the tag, not \"",
                      text.substr(0, kMaxNameBytes), "\"");
}

}  // namespace fusionllm::op::manager
