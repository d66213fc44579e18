#include "lib/kube/api/quantity.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::kube {
namespace {

__extension__ typedef __int128 Wide;

constexpr size_t kMaxBytes = 64;
constexpr int kMaxDigits = 27;  // what a Wide holds with room for a factor; more are no amount of anything
// Beyond it any number that a text of kMaxBytes can write is more than any amount, or less than one.
constexpr int kMaxTens = 128;

struct Scale {
  int tens = 0;   // times 10^tens
  int kibis = 0;  // times 1024^kibis
};

std::optional<Scale> ReadSuffix(absl::string_view suffix) {
  if (suffix.empty()) return Scale();
  constexpr absl::string_view kBinary = "KMGTPE";
  if (suffix.size() == 2 && suffix[1] == 'i') {
    const size_t at = kBinary.find(suffix[0]);
    if (at == absl::string_view::npos) return std::nullopt;
    return Scale{.kibis = static_cast<int>(at) + 1};
  }
  if (suffix.size() == 1) {
    switch (suffix[0]) {
      case 'n':
        return Scale{.tens = -9};
      case 'u':
        return Scale{.tens = -6};
      case 'm':
        return Scale{.tens = -3};
      case 'k':
        return Scale{.tens = 3};
      case 'M':
        return Scale{.tens = 6};
      case 'G':
        return Scale{.tens = 9};
      case 'T':
        return Scale{.tens = 12};
      case 'P':
        return Scale{.tens = 15};
      case 'E':
        return Scale{.tens = 18};
      default:
        return std::nullopt;
    }
  }
  if (suffix[0] != 'e' && suffix[0] != 'E') return std::nullopt;
  suffix.remove_prefix(1);
  const bool negative = absl::StartsWith(suffix, "-");
  if (negative || absl::StartsWith(suffix, "+")) suffix.remove_prefix(1);
  if (suffix.empty() || !std::all_of(suffix.begin(), suffix.end(), absl::ascii_isdigit)) return std::nullopt;
  int exponent = 0;
  if (!absl::SimpleAtoi(suffix, &exponent)) exponent = kMaxTens;
  exponent = std::min(exponent, kMaxTens);
  return Scale{.tens = negative ? -exponent : exponent};
}

}  // namespace

absl::StatusOr<int64_t> ParseQuantity(absl::string_view text, int64_t per_one) {
  const absl::Status wrong = absl::InvalidArgumentError(absl::StrCat("not a quantity: \"", text.substr(0, kMaxBytes), "\""));
  const absl::Status too_much = absl::OutOfRangeError(absl::StrCat("the quantity ", text.substr(0, kMaxBytes), " is out of range"));
  if (text.empty() || text.size() > kMaxBytes) return wrong;
  size_t at = 0;
  const bool negative = text[0] == '-';
  if (text[0] == '-' || text[0] == '+') ++at;
  Wide number = 0;
  int digits = 0, significant = 0, after_point = 0;
  bool point = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !point) {
      point = true;
      continue;
    }
    if (!absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) break;
    ++digits;
    if (point) ++after_point;
    if (number != 0 || text[at] != '0') ++significant;
    if (significant > kMaxDigits) return too_much;
    number = number * 10 + (text[at] - '0');
  }
  const std::optional<Scale> scale = ReadSuffix(text.substr(at));
  if (digits == 0 || !scale.has_value()) return wrong;
  bool overflow = __builtin_mul_overflow(number, static_cast<Wide>(per_one), &number);
  for (int i = 0; i < scale->kibis; ++i) overflow |= __builtin_mul_overflow(number, Wide{1024}, &number);
  int tens = scale->tens - after_point;
  for (; tens > 0 && !overflow && number != 0; --tens) overflow |= __builtin_mul_overflow(number, Wide{10}, &number);
  if (overflow) return too_much;
  bool rest = false;
  for (; tens < 0 && number != 0; ++tens) {
    rest |= number % 10 != 0;
    number /= 10;
  }
  if (rest) ++number;
  if (number > std::numeric_limits<int64_t>::max()) return too_much;
  return static_cast<int64_t>(negative ? -number : number);
}

}  // namespace fusionllm::kube
