#include "cli/commands/option_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace fusionllm::cli {

CLI::Validator NumberFrom(double least, bool above) {
  const std::string bound = absl::StrFormat("%s %g", above ? "above" : "at least", least);
  const auto check = [=](const std::string& text) -> std::string {
    double number = 0;
    if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) return absl::StrFormat("'%s' is not a finite number", text);
    if (number < least || (above && number == least)) return absl::StrFormat("%s is not %s", text, bound);
    return "";
  };
  return CLI::Validator(check, absl::StrFormat("NUMBER %s", bound), "NumberFrom");
}

CLI::Validator WholeNumber() {
  const auto check = [](const std::string& text) -> std::string {
    uint64_t number = 0;
    const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
    if (digits && absl::SimpleAtoi(text, &number)) return "";
    return absl::StrFormat("'%s' is not a whole number from 0 to 18446744073709551615", text);
  };
  return CLI::Validator(check, "WHOLE NUMBER", "WholeNumber");
}

}  // namespace fusionllm::cli
