#include "lib/kube/auth/exec_rules.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/status_macros.h"
#include "lib/kube/auth/exec_plugin.h"

namespace fusionllm::kube {
namespace {

bool Matches(const ExecRule& rule, const ExecConfig& exec) {
  return rule.command == exec.command && std::equal(rule.args.begin(), rule.args.end(), exec.args.begin(), exec.args.end(),
                                                    [](const std::string& wanted, const std::string& given) {
                                                      if (wanted != kAnyArgument) return wanted == given;
                                                      return !given.empty() && !absl::StartsWith(given, "-");
                                                    });
}

}  // namespace

absl::StatusOr<ExecRule> ParseExecRule(absl::string_view text) {
  std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  if (words.empty()) return absl::InvalidArgumentError("must name a program");
  FUSIONLLM_RETURN_IF_ERROR(CheckExecCommand(words.front()));
  return ExecRule{.command = words.front(), .args = {words.begin() + 1, words.end()}};
}

absl::Status CheckExecVariable(absl::string_view name) {
  const auto is_alpha = [](char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; };
  const bool is_name = !name.empty() && is_alpha(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_alpha(c) || absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!is_name) return absl::InvalidArgumentError("must be the name of a variable: letters, digits and '_', no digit first");
  constexpr const char* kLoaders[] = {"PATH",         "BASH_ENV",  "ENV",      "IFS",        "GCONV_PATH",
                                      "PYTHONPATH",   "PERL5LIB",  "PERL5OPT", "PYTHONHOME", "PYTHONSTARTUP",
                                      "NODE_OPTIONS", "NODE_PATH", "RUBYOPT",  "RUBYLIB",    "JAVA_TOOL_OPTIONS"};
  const bool loads = absl::StartsWith(name, "LD_") || absl::StartsWith(name, "DYLD_") ||
                     std::any_of(std::begin(kLoaders), std::end(kLoaders), [&](const char* one) { return name == one; });
  if (loads) return absl::InvalidArgumentError(absl::StrCat("must not be ", name, ", by which others would say what code runs here"));
  return absl::OkStatus();
}

std::string RefusalOf(const ExecConfig& exec, const ExecRules& rules) {
  const bool known =
      std::any_of(rules.calls.begin(), rules.calls.end(), [&](const ExecRule& rule) { return rule.command == exec.command; });
  if (!known) return absl::StrCat("exec would run ", exec.command, " here, which is not among the programs allowed");
  if (std::none_of(rules.calls.begin(), rules.calls.end(), [&](const ExecRule& rule) { return Matches(rule, exec); })) {
    return absl::StrCat("exec would run ", exec.command, " here with ",
                        exec.args.empty() ? "no arguments" : absl::StrCat("the arguments ", absl::StrJoin(exec.args, " ")),
                        ", which are not among those allowed for it");
  }
  for (const auto& variable : exec.env) {
    if (const absl::Status status = CheckExecVariable(variable.first); !status.ok()) {
      return absl::StrCat("exec.env: ", status.message());
    }
    if (!rules.env.contains(variable.first)) {
      return absl::StrCat("exec.env would set ", variable.first, ", which is not among the variables allowed");
    }
  }
  return "";
}

}  // namespace fusionllm::kube
