#include "cli/commands/option_checks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/dns_label.h"
#include "lib/job/name.h"

namespace fusionllm::cli {
namespace {

constexpr char kOneOf[] = "OneOf";

}  // namespace

CLI::Validator NumberFrom(double min, bool above) {
  const std::string bound = absl::StrFormat("%s %g", above ? "above" : "at least", min);
  const auto check = [=](const std::string& text) -> std::string {
    double number = 0;
    if (!absl::SimpleAtod(text, &number) || !std::isfinite(number)) return absl::StrFormat("'%s' is not a finite number", text);
    if (number < min || (above && number == min)) return absl::StrFormat("%s is not %s", text, bound);
    return "";
  };
  return CLI::Validator(check, absl::StrFormat("NUMBER %s", bound), "NumberFrom");
}

CLI::Validator ObjectName() {
  const auto check = [](const std::string& text) -> std::string {
    if (base::IsDnsLabel(text)) return "";
    return absl::StrFormat("'%s' is no name: up to 63 small letters, digits and '-', which stands at neither end", text);
  };
  return CLI::Validator(check, "NAME", "ObjectName");
}

CLI::Validator JobName() {
  const auto check = [](const std::string& text) -> std::string {
    return job::IsJobName(text) ? "" : absl::StrFormat("'%s' is no name of a job: it must be %s", text, job::kJobNameRule);
  };
  return CLI::Validator(check, "NAME", "JobName");
}

CLI::Validator ClusterName() {
  static constexpr size_t kMaxNameLength = 20;  // as the definition of FusionClusters has it
  const auto check = [](const std::string& text) -> std::string {
    if (base::IsDnsLabel(text) && text.size() <= kMaxNameLength) return "";
    return absl::StrFormat("'%s' is no name: up to %d small letters, digits and '-', which stands at neither end", text, kMaxNameLength);
  };
  return CLI::Validator(check, "NAME", "ClusterName");
}

CLI::Validator SiteName() {
  const auto check = [](const std::string& text) -> std::string {
    return job::IsName(text) ? "" : absl::StrFormat("'%s' is no name of a site: %s", text, job::kNameRule);
  };
  return CLI::Validator(check, "NAME", "SiteName");
}

bool LooksLikeSetting(const std::string& word) {
  const size_t equals = word.find('=');
  std::error_code error;
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._[]-", c); }) &&
         !std::filesystem::exists(word, error);
}

CLI::Validator JobFile() {
  const auto check = [](const std::string& text) -> std::string {
    return LooksLikeSetting(text) ? absl::StrCat("'", text, "' is no job file; write --set before each field: --set ", text) : "";
  };
  return CLI::Validator(check, "", "JobFile");
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

CLI::Validator OneOf(std::vector<std::string> words, std::function<std::string(const std::string&)> problem) {
  const std::string listed = absl::StrCat("{", absl::StrJoin(words, ","), "}");
  const auto check = [words = std::move(words), listed, problem = std::move(problem)](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    return problem ? problem(text) : absl::StrCat(text, " not in ", listed);
  };
  return CLI::Validator(check, listed, kOneOf);
}

// The help text of the check is all that CLI11 lets a validator carry.
std::vector<std::string> WordsOf(CLI::Option& option) {
  try {
    const std::string listed = option.get_validator(kOneOf)->get_description();
    return absl::StrSplit(absl::StripSuffix(absl::StripPrefix(listed, "{"), "}"), ',');
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}

}  // namespace fusionllm::cli
