#include "lib/job/printer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "lib/job/document.h"
#include "lib/job/scalar.h"

namespace fusionllm::job {

std::string YamlText(absl::string_view text) {
  static constexpr absl::string_view kReserved[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  const auto plain_char = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' || c == '/';
  };
  // Only text that starts with a letter or '/' is left plain: numbers, dates and ".inf" are beyond doubt then. 1f1b is text to every
  // reader.
  const bool plain = !text.empty() && (absl::ascii_isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/' || text == "1f1b") &&
                     std::all_of(text.begin(), text.end(), plain_char) &&
                     std::find(std::begin(kReserved), std::end(kReserved), absl::AsciiStrToLower(text)) == std::end(kReserved);
  return plain ? std::string(text) : JsonQuote(text);
}

std::string ScalarText(bool value, const Rule& rule) { return value ? "true" : "false"; }
std::string ScalarText(int64_t value, const Rule& rule) { return rule.zero_is_auto && value == 0 ? "auto" : absl::StrCat(value); }
std::string ScalarText(double value, const Rule& rule) { return NumberText(value); }
std::string ScalarText(const std::string& value, const Rule& rule) { return YamlText(value); }

}  // namespace fusionllm::job
